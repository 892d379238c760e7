"""CSV files as spreadsheets and learning platforms write them.

The separator is a comma, a semicolon or a tab; the text is UTF-8, or UTF-16 with its mark.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from ddp_course.errors import BadArgument

_NAMED = re.compile(r"sep=(?P<separator>[,;\t])\r?\n", re.IGNORECASE)  # as Excel begins a file


@dataclass(frozen=True)
class Sheet:
    """A heading, rows, and how the file was written.

    lines   where in the file each row begins
    """

    name: str
    heading: list[str]
    rows: list[list[str]]
    lines: list[int]
    encoding: str = "utf-8"
    separator: str = ","

    def written(self) -> bytes:
        """The file again, in the same encoding and with the same separator."""
        buffer = io.StringIO(newline="")
        csv.writer(buffer, delimiter=self.separator).writerows([self.heading, *self.rows])
        return buffer.getvalue().encode(self.encoding)

    def column(self, heading: str) -> int:
        """The place of the one column with this heading."""
        found = [i for i, name in enumerate(self.heading) if name.strip() == heading]
        if len(found) != 1:
            raise BadArgument(
                f"{self.name} has {'no' if not found else 'more than one'} column {heading!r}; "
                f"its headings are {self.shown}.",
                action="copy the heading, or the assignment's number, from there",
            )
        return found[0]

    @property
    def shown(self) -> str:
        """The headings, for a message."""
        return ", ".join(repr(name.strip()) for name in self.heading)[:600] or "nothing"


def read(path: Path) -> Sheet:
    """A file's rows, blank ones left out. Raises BadArgument, with the line, for other files."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadArgument(
            f"{path} cannot be read: {error.strerror}.", action="name a CSV file"
        ) from None
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    encoding = "utf-16" if wide else "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        return parse(raw.decode(encoding), str(path), encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadArgument(
            f"{path}, line {line}: not {encoding.upper()} text.",
            cause="a spreadsheet program saved it in an encoding of its own",
            action='save it again as "CSV UTF-8", or take the file as the platform exported it',
        ) from None


def parse(text: str, name: str, encoding: str = "utf-8") -> Sheet:
    """Like `read`, from text."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise BadArgument(
            f"{name}, line {line}: NUL characters, so this is not CSV text.",
            action='save it as "CSV UTF-8"',
        )
    named = _NAMED.match(text)
    text = text[named.end() if named else 0 :]
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = named["separator"] if named else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, lines = [], []
    begins = line = 2 if named else 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(line)
            line = reader.line_num + begins
    except csv.Error as error:
        raise BadArgument(
            f"{name}, line {line}: the row cannot be read: {error}.",
            cause="a quote that is not closed, or text after a closing quote",
            action="correct that line, or take the file as the platform exported it",
        ) from None
    heading = rows.pop(0) if rows else []
    return Sheet(name, heading, rows, lines[1:], encoding, separator)
