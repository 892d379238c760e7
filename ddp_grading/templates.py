"""Scores into the file that the instructor exported from Canvas or Moodle; nothing else changes.

Heading, order of columns, quotes, separators, line ends and byte order mark stay as they are, byte
for byte; only the cells of scores are written. People are matched by their ids, never by name.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path

from ddp_course.errors import BadArgument
from ddp_grading import results
from ddp_grading.report import STATES, UNSCORED, Book, Row

TOTAL = "total"
LIMIT = 20 * 2**20  # bytes
CANVAS_IDS = ("SIS User ID", "SIS Login ID", "Integration ID")  # the best first
MOODLE_IDS = ("ID number", "Email address", "Username", "Identifier")
KEPT = ("N/A", "EX")  # Canvas: not assigned, excused


@dataclass(frozen=True)
class Cell:
    """A cell's text, and where in the file it stands, quotes included."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Filled:
    """The file with scores in it; who was left out, as lines to print."""

    data: bytes
    filled: int
    left_out: tuple[str, ...] = ()


def fill_canvas(
    book: Book,
    path: Path | str,
    assign: Mapping[str, str] | None = None,
    *,
    scale: bool = False,
    id_column: str = "",
) -> Filled:
    """A gradebook exported from Canvas, filled.

    assign    exercise or "total" → the assignment's id, the number that ends its heading in
              brackets. Without it, headings that contain an exercise's name as a word are taken.
    scale     stretch scores to the points that the file names where they are not the course's

    Raises BadArgument when no column or no person can be matched, or the points differ.
    """
    sheet = _read(Path(path))
    columns = {
        name: _assignment(sheet, wanted) for name, wanted in (assign or {}).items()
    } or _named(sheet, book)
    _known(book, columns)
    worth = next(
        (row for row in sheet.rows if row and row[0].text.strip() == "Points Possible"), []
    )
    limits = {name: worth[at].text if at < len(worth) else "" for name, at in columns.items()}
    ids = [id_column] if id_column else [name for name in CANVAS_IDS if name in sheet.heading]
    return _fill(sheet, book, columns, lambda name, _: limits[name], ids, scale=scale)


def fill_moodle(
    book: Book,
    path: Path | str,
    assign: Mapping[str, str] | None = None,
    *,
    scale: bool = False,
    id_column: str = "",
) -> Filled:
    """A grading worksheet downloaded from a Moodle assignment, filled. See fill_canvas.

    assign    exercise or "total" → a heading; without it, the total goes to "Grade"
    """
    sheet = _read(Path(path))
    columns = {
        name: _column(sheet, heading) for name, heading in (assign or {TOTAL: "Grade"}).items()
    }
    _known(book, columns)
    most = next((i for i, name in enumerate(sheet.heading) if name.lower() == "maximum grade"), -1)
    ids = [id_column] if id_column else [name for name in MOODLE_IDS if name in sheet.heading]

    def limit(_: str, row: list[Cell]) -> str:
        return row[most].text if 0 <= most < len(row) else ""

    return _fill(sheet, book, columns, limit, ids, scale=scale, locked="Grade can be changed")


@dataclass(frozen=True)
class _Sheet:
    name: str
    text: str
    mark: bytes
    encoding: str
    rows: list[list[Cell]]  # without the heading

    heading: list[str]


def _read(path: Path) -> _Sheet:
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise BadArgument(f"The template {path} cannot be read: {error.strerror}.") from None
    if len(raw) > LIMIT:
        raise BadArgument(f"{path} is larger than {LIMIT // 2**20} MB.")
    again = "take the file as the platform exported it"
    marks = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le"}
    marks[codecs.BOM_UTF16_BE] = "utf-16-be"
    mark, encoding = next(
        ((mark, name) for mark, name in marks.items() if raw.startswith(mark)), (b"", "utf-8")
    )
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        raise BadArgument(
            f"{path} is not {encoding.upper()} text.",
            cause="a spreadsheet program saved it again",
            action=again,
        ) from None
    first = text.split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    try:
        rows = split(text, separator)
        usual = [
            row or [""] for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        ]
    except (ValueError, csv.Error) as error:
        raise BadArgument(f"{path} is no CSV file: {error}.", action=again) from None
    if not rows:
        raise BadArgument(f"{path} is empty.", action=again)
    if [[cell.text for cell in row] for row in rows] != usual:  # read otherwise by other programs
        raise BadArgument(f"{path} is no CSV file that can be changed safely.", action=again)
    heading = [cell.text.strip() for cell in rows[0]]
    return _Sheet(str(path), text, mark, encoding, rows[1:], heading)


def split(text: str, separator: str) -> list[list[Cell]]:
    """The rows of a CSV text, each cell with its place. ValueError where quotes are wrong."""
    rows: list[list[Cell]] = []
    row: list[Cell] = []
    at = 0
    while at < len(text):
        start = at
        if text[at] == '"':
            at += 1
            while True:
                at = text.find('"', at)
                if at < 0:
                    raise ValueError("a quote is not closed")
                if text[at + 1 : at + 2] != '"':
                    break
                at += 2
            at += 1
            value = text[start + 1 : at - 1].replace('""', '"')
        else:
            while at < len(text) and text[at] not in (separator, "\r", "\n"):
                at += 1
            value = text[start:at]
        row.append(Cell(value, start, at))
        if at < len(text) and text[at] == separator:
            at += 1
            if at < len(text) and text[at] not in "\r\n":
                continue
            row.append(Cell("", at, at))
        elif at < len(text) and text[at] not in "\r\n":
            raise ValueError("text follows a closing quote")
        if text[at : at + 2] == "\r\n":
            at += 2
        elif at < len(text):
            at += 1
        rows.append(row)
        row = []
    return rows


def _fill(
    sheet: _Sheet,
    book: Book,
    columns: Mapping[str, int],
    limit: Callable[[str, list[Cell]], str],
    ids: list[str],
    *,
    scale: bool,
    locked: str = "",
) -> Filled:
    places = [_column(sheet, name) for name in ids]
    if not places:
        raise BadArgument(
            f"{sheet.name} has no column of ids; its headings are {_shown(sheet.heading)}.",
            action='export it with ids, or name the column: --id-column "…"',
        )
    found, left_out = _match(sheet, book, places)
    if not found:
        raise BadArgument(
            f"Nobody in {sheet.name} is in the roster.",
            cause=f"the ids there ({', '.join(ids)}) are not the roster's ids or e-mail addresses",
            action="add a column with these ids to the roster",
        )
    guard = sheet.heading.index(locked) if locked in sheet.heading else -1
    changes: list[tuple[Cell, str]] = []
    filled = set()
    for number, row in found.items():
        cells = sheet.rows[number]
        for name, at in columns.items():
            who = f"{row.student.id} {row.student.name}".strip()
            cell = cells[at] if at < len(cells) else None
            score = _score(row, name)
            if isinstance(score, str):
                left_out.append(f"{who}: {name} {score}; left as it was")
            elif cell is None:
                left_out.append(f"{who}: the line has too few cells")
            elif cell.text.strip() in KEPT or (guard >= 0 and cells[guard].text == "No"):
                left_out.append(f"{who}: the platform allows no score here; left as it was")
            else:
                most = row.max_score if name == TOTAL else sum(results.manifest(name).values())
                changes.append((cell, _written(score, most, limit(name, cells), sheet, scale)))
                filled.add(number)
    text = sheet.text
    for cell, new in sorted(changes, key=lambda change: change[0].start, reverse=True):
        quoted = f'"{new}"' if text[cell.start : cell.start + 1] == '"' or "," in new else new
        text = text[: cell.start] + quoted + text[cell.end :]
    return Filled(sheet.mark + text.encode(sheet.encoding), len(filled), tuple(left_out))


def _match(sheet: _Sheet, book: Book, places: list[int]) -> tuple[dict[int, Row], list[str]]:
    """Line number → the one student whom an id on it names; and who is on one side only."""
    names: dict[str, set[int]] = {}
    for index, row in enumerate(book.rows):
        for name in (row.student.id, row.student.email, *row.student.also):
            for form in {results.tidy_id(name), _folded(name)} - {""}:
                names.setdefault(form, set()).add(index)
    found: dict[int, int] = {}
    for number, cells in enumerate(sheet.rows):
        for at in places:
            value = cells[at].text.strip().removeprefix("Participant ") if at < len(cells) else ""
            owners = names.get(results.tidy_id(value)) or names.get(_folded(value), set())
            if len(owners) == 1:
                found[number] = next(iter(owners))
                break
    lines: dict[int, list[int]] = {}
    for number, index in found.items():
        lines.setdefault(index, []).append(number)
    left_out = []
    for index, row in enumerate(book.rows):
        who = f"{row.student.id} {row.student.name}".strip()
        if len(lines.get(index, [])) > 1:
            left_out.append(f"{who}: several lines of the file have this person; none was filled")
            for number in lines[index]:
                del found[number]
        elif index not in lines:
            left_out.append(f"{who}: in the roster, not in the file")
    taken = {number for numbers in lines.values() for number in numbers}
    for number, cells in enumerate(sheet.rows):
        if number not in taken and any(at < len(cells) and cells[at].text.strip() for at in places):
            left_out.append(f"{cells[0].text.strip()}: in the file, not in the roster")
    return {number: book.rows[index] for number, index in found.items()}, left_out


def _folded(text: str) -> str:
    """An id where letters' case does not matter; marked, so that no id is equal to it."""
    tidy = results.tidy_id(text).casefold()
    return f"\0{tidy}" if tidy else ""


def _score(row: Row, name: str) -> float | str:
    """A score, or why there is none."""
    if name == TOTAL:
        if row.open:
            return "must be graded again"
        return STATES["missing"][1] if row.absent else row.score
    one = row.records.get(name)
    state = row.states.get(name, "missing")
    if one is None or state in UNSCORED:
        return STATES[state][1]
    return one.score


def _written(score: float, most: int, limit: str, sheet: _Sheet, scale: bool) -> str:
    """The score as the platform writes numbers: with its decimal mark, stretched if asked."""
    comma = bool(re.fullmatch(r"\d+,\d+", limit.strip()))
    try:
        possible = Decimal(limit.strip().replace(",", ".") if comma else limit.strip())
    except InvalidOperation:
        possible = Decimal(most)
    exact = Decimal(str(score))
    if possible != most:
        if not scale:
            raise BadArgument(
                f"{sheet.name} has {limit.strip()} points where the course has {most}.",
                action="set the points of the assignment so on the platform, or give --scale",
            )
        exact = exact * possible / most
    shown = format(exact.quantize(Decimal("0.01"), ROUND_HALF_UP), "f")
    return shown.replace(".", ",") if comma else shown


def _assignment(sheet: _Sheet, number: str) -> int:
    found = [i for i, name in enumerate(sheet.heading) if name.endswith(f"({number})")]
    return found[0] if len(found) == 1 else _column(sheet, number)


def _named(sheet: _Sheet, book: Book) -> dict[str, int]:
    """Columns of assignments whose heading contains an exercise's name as a word."""
    found: dict[str, int] = {}
    for at, heading in enumerate(sheet.heading):
        words = re.findall(r"[a-z0-9]+", re.sub(r"\(\d+\)$", "", heading).casefold())
        for name in book.points:
            if name in words and re.search(r"\(\d+\)$", heading):
                if name in found:
                    raise BadArgument(
                        f"{sheet.name} has two columns for {name}.",
                        action=f"choose one: --assign {name}=NUMBER",
                    )
                found[name] = at
    if not found:
        raise BadArgument(
            f"No heading in {sheet.name} names an exercise; it has {_shown(sheet.heading)}.",
            action="say where scores go: --assign total=NUMBER, the number in brackets",
        )
    return found


def _column(sheet: _Sheet, heading: str) -> int:
    found = [i for i, name in enumerate(sheet.heading) if name == heading]
    if len(found) != 1:
        raise BadArgument(
            f"{sheet.name} has {'no' if not found else 'more than one'} column {heading!r}; "
            f"its headings are {_shown(sheet.heading)}.",
            action="copy the heading, or the assignment's number, from there",
        )
    return found[0]


def _known(book: Book, columns: Mapping[str, int]) -> None:
    for name in columns:
        if name != TOTAL and name not in book.points:
            raise BadArgument(
                f"There are no results of {name!r}.",
                action="choose of " + ", ".join([TOTAL, *book.points]),
            )


def _shown(names: list[str]) -> str:
    return ", ".join(map(repr, names))[:600]
