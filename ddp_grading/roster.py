"""Who is in the class: a CSV file as spreadsheets and learning platforms write it.

    id, name, email, section                     who
    due, submitted, attempts, max_attempts       when, and how often; empty if it does not matter

Only the id is needed. The separator is a comma, a semicolon or a tab; the text is UTF-8, or UTF-16
with its mark. Other usual headings are understood, capitals and order do not matter, and further
columns are left alone.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ddp_course.errors import BadArgument, NoEvidence
from ddp_grading import results

# column: the headings that it may have, the best first
HEADINGS = {
    "id": (
        "id",
        "student id",
        "student number",
        "sid",
        "sis id",
        "sis user id",
        "id number",
        "sis login id",
        "login",
        "username",
        "user name",
        "identifier",
        "github username",
    ),
    "name": ("name", "full name", "student name", "student"),
    "first": ("first name", "given name", "firstname"),
    "last": ("last name", "surname", "family name", "lastname"),
    "email": ("email", "e mail", "email address", "e mail address", "mail"),
    "section": ("section", "group", "sections", "class"),
    "due": ("due", "due date", "due time", "deadline"),
    "submitted": ("submitted", "submitted at", "submission time", "submission date"),
    "attempts": ("attempts", "attempt"),
    "max_attempts": ("max attempts", "attempts allowed", "allowed attempts"),
}
LIMIT = 20 * 2**20  # bytes of a roster
_NAMED = re.compile(r"sep=(?P<separator>[,;\t])\r?\n", re.IGNORECASE)  # as Excel begins a file
ID_LIMIT = 200  # characters of a student's id


@dataclass(frozen=True)
class Student:
    """One person of the class. `id` is composed (NFC) and has no space around it.

    due, submitted   times with their zone, or None
    attempts         how many submissions the platform counted, this one included, or None
    also             further ids of the same person (login, platform number), for matching
    zone             the time zone that was assumed, "" if every time had its own
    line             where in the file
    """

    id: str
    name: str = ""
    email: str = ""
    section: str = ""
    due: datetime | None = None
    submitted: datetime | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    also: tuple[str, ...] = ()
    zone: str = ""
    line: int = 0


def read(path: Path | str, zone: str = "UTC") -> list[Student]:
    """The students of a CSV file, in its order.

    `zone` holds for times that name none, e.g. "Europe/Berlin". Where the clock shows a time twice
    or jumps over it, the reading that is better for the student is taken.

    Raises BadArgument, with the lines, for a file that cannot be read as meant: no column of ids,
    an id or e-mail address twice, a time or number that is none.
    """
    return parse(_text(Path(path)), zone=zone, name=str(path))


def parse(text: str, *, zone: str = "UTC", name: str = "the roster") -> list[Student]:
    """Like `read`, from text."""
    rows = _rows(text, name)
    start, head = next(rows, (1, []))
    columns = _columns(head, name, start)
    ids = [
        i for i, one in enumerate(map(_plain, head)) if one in HEADINGS["id"] and i != columns["id"]
    ]
    tz = find_zone(zone)
    students = []
    for line, row in rows:
        if any(cell.strip() for cell in row[len(head) :]):
            raise _wrong(name, line, f"has {len(row)} cells where the heading has {len(head)}")
        cells = row + [""] * (len(head) - len(row))
        values = {key: _cell(cells[i], name, line) for key, i in columns.items()}
        if not values["id"] and _plain(values.get("name", "")) == "points possible":
            continue  # the second row of a gradebook that Canvas exported
        students.append(_student(values, [cells[i] for i in ids], name, line, zone, tz))
    if not students:
        raise BadArgument(f"{name} names no students.", action="write one line for each below")
    _unique(students, name)
    return students


def keep(out: Path | str, students: Sequence[Student]) -> None:
    """Write the class beside the results, so that reports know who is missing."""
    rows = [
        asdict(one) | {"due": _iso(one.due), "submitted": _iso(one.submitted)} for one in students
    ]
    text = json.dumps({"version": 1, "students": rows}, indent=1, ensure_ascii=False) + "\n"
    results.put(Path(out) / "roster.json", text)


def kept(out: Path | str) -> list[Student] | None:
    """The class that was kept beside the results, or None. Raises NoEvidence if damaged."""
    path = Path(out) / "roster.json"
    if not path.exists():
        return None
    try:
        data = json.loads(results.text_of(path))
        students = [_known(row) for row in data["students"]]
        _unique(students, str(path))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoEvidence(
            f"{path} is damaged ({results.clean(str(error), 200)}).", action="give --roster R.csv"
        ) from None
    return students


def find_zone(name: str) -> tzinfo:
    """A time zone by its name. Raises BadArgument for a name that none has."""
    if name.upper() == "UTC":
        return UTC  # needs no table of zones, which small systems lack
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadArgument(
            f"There is no time zone {name!r} here.",
            action='choose one such as "UTC" or "Europe/Berlin"; if none is found: install tzdata',
        ) from None


def _known(row: dict[str, Any]) -> Student:
    if set(row) != {field.name for field in fields(Student)}:
        raise ValueError("a student lacks a field, or has one too many")
    for key in ("due", "submitted"):
        row[key] = datetime.fromisoformat(row[key]) if row[key] else None
        if row[key] and row[key].tzinfo is None:
            raise ValueError(f"{key} has no zone")
    for key in ("id", "name", "email", "section", "zone"):
        if not isinstance(row[key], str) or row[key] != results.clean(row[key]):
            raise ValueError(f"{key} is no text")
    for key in ("attempts", "max_attempts"):
        if row[key] is not None and type(row[key]) is not int:
            raise ValueError(f"{key} is no number")
    results.folder_name(row["id"])
    return Student(**{**row, "also": tuple(map(str, row["also"]))})


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise BadArgument(
            f"The roster {path} cannot be read: {error.strerror}.", action="name a CSV file"
        ) from None
    if len(raw) > LIMIT:
        raise BadArgument(f"{path} is larger than {LIMIT // 2**20} MB: no roster of a class.")
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadArgument(
            f"{path}, line {line}: not UTF-8 text.",
            cause="a spreadsheet program wrote it in its own encoding",
            action='save it again as "CSV UTF-8"',
        ) from None


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row that is not blank; `line` is the row's first."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise _wrong(name, line, "holds NUL characters: this is no CSV text")
    named = _NAMED.match(text)
    reader = csv.reader(
        io.StringIO(text[named.end() if named else 0 :], newline=""),
        delimiter=named["separator"] if named else _separator(text),
        strict=True,
    )
    first = line = 2 if named else 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield line, row
            line = reader.line_num + first
    except csv.Error as error:
        raise _wrong(name, line, f"cannot be read: {error} (is a quote not closed?)") from None


def _separator(text: str) -> str:
    """The one that splits the first row into the most headings that we know."""
    known = {heading for headings in HEADINGS.values() for heading in headings}

    def score(separator: str) -> tuple[int, int]:
        try:
            reader = csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=separator)
            head = next(reader, [])
        except csv.Error:
            return (-1, 0)
        return sum(_plain(cell) in known for cell in head), len(head)

    return max(",;\t", key=score)


def _columns(head: list[str], name: str, line: int) -> dict[str, int]:
    plain = [_plain(cell) for cell in head]
    columns = {}
    for column, headings in HEADINGS.items():
        for heading in headings:
            if plain.count(heading) > 1:
                raise _wrong(name, line, f"has the heading {heading!r} twice")
            if heading in plain:
                columns[column] = plain.index(heading)
                break
    if "id" not in columns:
        shown = ", ".join(repr(cell.strip()) for cell in head) or "nothing"
        raise BadArgument(
            f"{name}, line {line}: no column of student ids; the heading has {shown[:300]}.",
            cause="the file has no heading, or another name for the ids",
            action="call the column id",
        )
    return columns


def _plain(heading: str) -> str:
    """Without capitals, marks and double spaces: "E-Mail_Address " → "e mail address"."""
    return " ".join(re.split(r"[\W_]+", heading.casefold())).strip()


def _cell(cell: str, name: str, line: int) -> str:
    tidy = results.tidy_id(" ".join(cell.split()))
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in tidy):
        raise _wrong(name, line, f"holds control characters in {tidy!r:.80}")
    return tidy


def _student(
    values: dict[str, str], also: list[str], name: str, line: int, zone: str, tz: tzinfo
) -> Student:
    if not values["id"]:
        raise _wrong(name, line, "has no student id")
    if len(values["id"]) > ID_LIMIT:
        raise _wrong(name, line, f"has an id of more than {ID_LIMIT} characters")
    assumed = False
    moments: dict[str, datetime | None] = {}
    for key in ("due", "submitted"):
        try:
            moments[key], naive = moment(values.get(key, ""), tz, late=key == "due")
        except ValueError:
            raise _wrong(
                name, line, f"has {values[key]!r:.80} as time {key}; write 2026-03-01 23:59+01:00"
            ) from None
        assumed = assumed or naive
    numbers = {}
    for key, least in (("attempts", 0), ("max_attempts", 1)):
        text = values.get(key, "")
        if text and not (re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= least):
            raise _wrong(name, line, f"has {text!r:.80} as {key}; write a number from {least}")
        numbers[key] = int(text) if text else None
    parts = [values.get("first", ""), values.get("last", "")]
    return Student(
        id=values["id"],
        name=values.get("name", "") or " ".join(filter(None, parts)),
        email=values.get("email", ""),
        section=values.get("section", ""),
        due=moments["due"],
        submitted=moments["submitted"],
        attempts=numbers["attempts"],
        max_attempts=numbers["max_attempts"],
        also=tuple(tidy for cell in also if (tidy := _cell(cell, name, line))),
        zone=zone if assumed else "",
        line=line,
    )


def moment(text: str, tz: tzinfo, *, late: bool) -> tuple[datetime | None, bool]:
    """A time in UTC, and whether its zone was assumed. ValueError if it is none.

    A day alone means its end if `late`, else its beginning. A time that the clock shows twice or
    never is the later reading if `late`, else the earlier one.
    """
    if not text:
        return None, False
    text = re.sub(r"\s+(UTC|GMT|Z)$", "+00:00", text, flags=re.IGNORECASE)
    text = re.sub(r"\s+([+-]\d\d:?\d\d)$", r"\1", text)
    words = text.rsplit(" ", 1)
    if len(words) == 2 and re.match(r"[A-Za-z]\w*/", words[1]):
        try:
            tz, text = find_zone(words[1]), words[0]
        except BadArgument as error:
            raise ValueError(str(error)) from None
        found, _ = moment(text, tz, late=late)
        return found, False
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        day = datetime.combine(datetime.fromisoformat(text).date(), time())
        found = day + timedelta(days=1) if late else day
    else:
        found = datetime.fromisoformat(text)
    try:
        if found.tzinfo is not None:
            return found.astimezone(UTC), False
        readings = [found.replace(tzinfo=tz, fold=fold).astimezone(UTC) for fold in (0, 1)]
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return (max(readings) if late else min(readings)), True


def _unique(students: Sequence[Student], name: str) -> None:
    for what in ("id", "email"):
        seen: dict[str, int] = {}
        for one in students:
            value = one.id if what == "id" else one.email.casefold()
            if not value:
                continue
            if value in seen:
                raise BadArgument(
                    f"{name}: lines {seen[value]} and {one.line} have the same {what}"
                    + (f" {value!r:.80}." if what == "id" else "."),
                    action="leave each person in once",
                )
            seen[value] = one.line


def _wrong(name: str, line: int, what: str) -> BadArgument:
    return BadArgument(f"{name}, line {line}: the row {what}.", action="mend that line")
