"""Who is in the class: a CSV file as spreadsheets and learning platforms write it.

    id, name, email, section                     who
    due, submitted, attempts, max_attempts       when, and how often; empty if it does not matter

Only the id is needed. Other usual headings are understood, capitals and order do not matter, and
further columns are left alone. A due date without a time of day means the end of that day.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ddp_course.errors import BadArgument, NoEvidence
from ddp_grading import sheets, store

# column: the headings that it may have, the best first
HEADINGS = {
    "id": (
        "id", "student id", "student number", "sid", "sis id", "sis user id", "id number",
        "sis login id", "login", "username", "user name", "identifier", "github username",
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
}  # fmt: skip
ID_LIMIT = 200  # characters of a student's id
_MOMENT = re.compile(r"(.+?)\s*(Z|UTC|GMT|[+-]\d\d:?\d\d|[A-Za-z]+/\w+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Student:
    """One person of the class. `id` is composed (NFC) and has no space around it.

    due, submitted   times with their zone, or None
    attempts         how many submissions the platform counted, this one included, or None
    also             further ids of the same person (login, platform number), for matching
    assumed          how their times were read, where that had to be assumed, in words
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
    assumed: tuple[str, ...] = ()
    line: int = 0


def read(path: Path | str, zone: str = "UTC") -> list[Student]:
    """The students of a CSV file, in its order.

    `zone` holds for times that name none, e.g. "Europe/Berlin".

    Raises BadArgument, with the lines, for a file that cannot be read as meant: no column of ids,
    an id or e-mail address twice, something that is not a time or a number.
    """
    return _students(sheets.read(Path(path)), find_zone(zone))


def parse(text: str, *, zone: str = "UTC", name: str = "the roster") -> list[Student]:
    """Like `read`, from text."""
    return _students(sheets.parse(text, name), find_zone(zone))


def keep(out: Path | str, students: Sequence[Student]) -> None:
    """Keep the class beside the results, so that reports know who is missing."""
    rows = [(one.id, json.dumps(asdict(one), default=str)) for one in students]
    with store.database(out, make=True) as db:
        db.execute("DELETE FROM student")
        db.executemany("INSERT INTO student (id, data) VALUES (?, ?)", rows)


def kept(out: Path | str) -> list[Student] | None:
    """The class that was kept beside the results, or None. Raises NoEvidence if it was edited."""
    with store.database(out) as db:
        rows = db.execute("SELECT id, data FROM student ORDER BY rowid").fetchall()
    try:
        return [_known(json.loads(data)) for _, data in rows] or None
    except (ValueError, TypeError, KeyError) as error:
        raise NoEvidence(
            f"The class kept in {out} is damaged ({error}).", action="give --roster R.csv"
        ) from None


def find_zone(name: str) -> tzinfo:
    """A time zone by its name. Raises BadArgument for a name that none has."""
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC  # needs no table of zones, which small systems lack
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadArgument(
            f"There is no time zone {name!r} here.",
            action='choose one such as "UTC" or "Europe/Berlin"; if none is found: install tzdata',
        ) from None


def moment(text: str, tz: tzinfo, *, deadline: bool) -> tuple[datetime, str]:
    """A time in UTC, and what had to be assumed, in words. ValueError for other text.

    A day alone means its end for a deadline, otherwise its beginning.
    """
    match = _MOMENT.fullmatch(text)
    if not match:
        raise ValueError("no time")
    stamp, zone = match.groups()
    if zone and "/" in zone:
        tz = find_zone(zone)
    elif zone:  # an offset, which fromisoformat knows
        stamp += zone if zone[0] in "+-" else "Z"
    assumed = ""
    try:
        if deadline and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            assumed = f"due {text}: until the end of that day, {tz}"
            found = datetime.combine(datetime.fromisoformat(text) + timedelta(days=1), time())
        else:
            found = datetime.fromisoformat(stamp)
            if not zone and found.tzinfo is None:
                assumed = f"times without a zone: {tz}"
        return found.replace(tzinfo=found.tzinfo or tz).astimezone(UTC), assumed
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _known(data: dict[str, Any]) -> Student:
    for key in ("due", "submitted"):
        data[key] = datetime.fromisoformat(data[key]) if data[key] else None
    return Student(**{**data, "also": tuple(data["also"]), "assumed": tuple(data["assumed"])})


def _students(sheet: sheets.Sheet, tz: tzinfo) -> list[Student]:
    columns = _columns(sheet)
    ids = [
        at
        for at, heading in enumerate(map(_plain, sheet.heading))
        if heading in HEADINGS["id"] and at != columns["id"]
    ]
    students = []
    for line, row in zip(sheet.lines, sheet.rows, strict=True):
        width = len(sheet.heading)
        if any(cell.strip() for cell in row[width:]):
            raise _wrong(sheet, line, f"has {len(row)} cells where the heading has {width}")
        cells = [_cell(cell, sheet, line) for cell in row + [""] * (width - len(row))]
        values = {key: cells[at] for key, at in columns.items()}
        if not values["id"] and _plain(values.get("name", "")) == "points possible":
            continue  # the second row of a gradebook that Canvas exported
        also = tuple(cells[at] for at in ids if cells[at])
        students.append(_student(values, also, sheet, line, tz))
    if not students:
        raise BadArgument(
            f"{sheet.name} names no students.", action="write one line for each below the heading"
        )
    _unique(students, sheet.name)
    return students


def _columns(sheet: sheets.Sheet) -> dict[str, int]:
    plain = [_plain(cell) for cell in sheet.heading]
    columns = {}
    for column, headings in HEADINGS.items():
        for heading in headings:
            if plain.count(heading) > 1:
                raise BadArgument(
                    f"{sheet.name} has the heading {heading!r} twice.", action="rename one"
                )
            if heading in plain:
                columns[column] = plain.index(heading)
                break
    if "id" not in columns:
        raise BadArgument(
            f"{sheet.name} has no column of student ids; its heading is {sheet.shown}.",
            cause="the file has no heading, or a different name for the ids",
            action="call the column id",
        )
    return columns


def _plain(heading: str) -> str:
    """Without capitals, marks and double spaces: "E-Mail_Address " → "e mail address"."""
    return " ".join(re.split(r"[\W_]+", heading.casefold())).strip()


def _cell(cell: str, sheet: sheets.Sheet, line: int) -> str:
    tidy = store.tidy_id(" ".join(cell.split()))
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in tidy):
        raise _wrong(sheet, line, f"holds control characters in {tidy!r:.80}")
    return tidy


def _student(
    values: dict[str, str], also: tuple[str, ...], sheet: sheets.Sheet, line: int, tz: tzinfo
) -> Student:
    if not values["id"]:
        raise _wrong(sheet, line, "has no student id")
    if len(values["id"]) > ID_LIMIT:
        raise _wrong(sheet, line, f"has an id of more than {ID_LIMIT} characters")
    found: dict[str, Any] = {}
    assumed = []
    for key in ("due", "submitted"):
        if text := values.get(key, ""):
            try:
                found[key], note = moment(text, tz, deadline=key == "due")
            except ValueError:
                raise _wrong(
                    sheet, line, f"has {text!r:.80} as time {key}; write 2026-03-01 23:59+01:00"
                ) from None
            assumed += [note] if note else []
    for key, least in (("attempts", 0), ("max_attempts", 1)):
        if text := values.get(key, ""):
            if not (re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= least):
                raise _wrong(sheet, line, f"has {text!r:.80} as {key}; write a number from {least}")
            found[key] = int(text)
    names = [values.get("first", ""), values.get("last", "")]
    return Student(
        id=values["id"],
        name=values.get("name", "") or " ".join(filter(None, names)),
        email=values.get("email", ""),
        section=values.get("section", ""),
        also=also,
        assumed=tuple(assumed),
        line=line,
        **found,
    )


def _unique(students: Sequence[Student], name: str) -> None:
    for what in ("id", "email"):
        seen: dict[str, int] = {}
        for one in students:
            value = one.id if what == "id" else one.email.casefold()
            if value and value in seen:
                raise BadArgument(
                    f"{name}: lines {seen[value]} and {one.line} have the same {what}"
                    + (f" {value!r:.80}." if what == "id" else "."),
                    action="list each person once",
                )
            seen[value] = one.line


def _wrong(sheet: sheets.Sheet, line: int, what: str) -> BadArgument:
    return BadArgument(f"{sheet.name}, line {line}: the row {what}.", action="correct that line")
