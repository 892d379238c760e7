"""Scores into the file that the instructor exported from Canvas or Moodle.

Headings, order of columns, separator, encoding and all other cells stay as they are; only cells of
scores are written. People are matched by their ids, never by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path

from ddp_course.errors import BadArgument
from ddp_grading import sheets, store
from ddp_grading.report import STATES, UNSCORED, Book, Row
from ddp_grading.sheets import Sheet

TOTAL = "total"
IDS = {  # the headings of ids, the best first
    "canvas": ("SIS User ID", "SIS Login ID", "Integration ID"),
    "moodle": ("ID number", "Email address", "Username", "Identifier"),
}
KEPT = ("N/A", "EX")  # Canvas: not assigned, excused


@dataclass(frozen=True)
class Filled:
    """The file with scores in it; who was left out, as lines to print."""

    data: bytes
    filled: int
    left_out: tuple[str, ...] = ()


def fill(
    book: Book,
    path: Path | str,
    platform: str,
    assign: Mapping[str, str] | None = None,
    *,
    scale: bool = False,
    id_column: str = "",
) -> Filled:
    """A gradebook exported from Canvas, or a grading worksheet of a Moodle assignment, filled.

    assign    exercise or "total" → where its scores go: for Canvas the assignment's id, the number
              that ends its heading in brackets; for Moodle a heading. Without it: on Canvas the
              headings that contain an exercise's name as a word, on Moodle the total in "Grade"
    scale     stretch scores to the points that the file names where they are not the course's

    Raises BadArgument when no column or no person can be matched, or the points differ.
    """
    sheet = sheets.read(Path(path))
    if platform == "canvas":
        chosen = {name: _assignment(sheet, wanted) for name, wanted in (assign or {}).items()}
        columns = chosen or _named(sheet, book)
        worth = next((row for row in sheet.rows if row[0].strip() == "Points Possible"), [])
    else:
        wanted = assign or {TOTAL: "Grade"}
        columns = {name: sheet.column(heading) for name, heading in wanted.items()}
        most = next((i for i, name in enumerate(sheet.heading) if name == "Maximum Grade"), -1)

    def limit(column: int, row: list[str]) -> str:
        cells, at = (worth, column) if platform == "canvas" else (row, most)
        return cells[at] if 0 <= at < len(cells) else ""

    ids = [id_column] if id_column else [name for name in IDS[platform] if name in sheet.heading]
    return _fill(sheet, book, columns, limit, ids, scale=scale)


def _fill(
    sheet: Sheet,
    book: Book,
    columns: Mapping[str, int],
    limit: Callable[[int, list[str]], str],
    ids: list[str],
    *,
    scale: bool,
) -> Filled:
    if unknown := [name for name in columns if name not in (TOTAL, *book.points)]:
        raise BadArgument(
            f"There are no results of {unknown[0]!r}.",
            action="choose from " + ", ".join([TOTAL, *book.points]),
        )
    if not ids:
        raise BadArgument(
            f"{sheet.name} has no column of ids; its headings are {sheet.shown}.",
            action='export it with ids, or name the column: --id-column "…"',
        )
    found, left_out = _match(sheet, book, [sheet.column(name) for name in ids])
    if not found:
        raise BadArgument(
            f"Nobody in {sheet.name} is in the roster.",
            cause=f"the ids there ({', '.join(ids)}) are not the roster's ids or e-mail addresses",
            action="add a column with these ids to the roster",
        )
    locked = "Grade can be changed"
    guard = sheet.heading.index(locked) if locked in sheet.heading else -1
    rows = [[*row, *[""] * (len(sheet.heading) - len(row))] for row in sheet.rows]
    filled = set()
    for number, row in found.items():
        cells = rows[number]
        for name, at in columns.items():
            score = _score(row, name)
            if isinstance(score, str):
                left_out.append(f"{row.who}: {name} {score}; left as it was")
            elif cells[at].strip() in KEPT or (guard >= 0 and cells[guard] == "No"):
                left_out.append(f"{row.who}: the platform allows no score here; left as it was")
            else:
                most = row.max_score if name == TOTAL else book.points[name]
                cells[at] = _written(score, most, limit(at, cells), sheet, scale)
                filled.add(number)
    return Filled(replace(sheet, rows=rows).written(), len(filled), tuple(left_out))


def _match(sheet: Sheet, book: Book, places: list[int]) -> tuple[dict[int, Row], list[str]]:
    """Row number → the one student whom an id on it names; and who is on one side only."""
    names: dict[str, set[int]] = {}
    for index, row in enumerate(book.rows):
        for name in (row.student.id, row.student.email, *row.student.also):
            for form in _forms(name):
                names.setdefault(form, set()).add(index)
    lines: dict[int, list[int]] = {}  # of each student
    left_out = []
    for number, cells in enumerate(sheet.rows):
        given = [cells[at].strip() for at in places if at < len(cells)]
        owners = (_owner(value.removeprefix("Participant "), names) for value in given)
        owner = next((one for one in owners if one is not None), None)
        if owner is not None:
            lines.setdefault(owner, []).append(number)
        elif any(given):
            left_out.append(f"{cells[0].strip()}: in the file, not in the roster")
    found = {}
    for index, row in enumerate(book.rows):
        match lines.get(index, []):
            case [number]:
                found[number] = row
            case []:
                left_out.append(f"{row.who}: in the roster, not in the file")
            case _:
                left_out.append(f"{row.who}: on several lines of the file; none was filled")
    return found, left_out


def _forms(name: str) -> list[str]:
    """An id as it is, and where letters' case does not matter; marked, so that no id equals it."""
    tidy = store.tidy_id(name)
    return [tidy, f"\0{tidy.casefold()}"] if tidy else []


def _owner(value: str, names: Mapping[str, set[int]]) -> int | None:
    owners = next((names[form] for form in _forms(value) if form in names), set())
    return next(iter(owners)) if len(owners) == 1 else None


def _score(row: Row, name: str) -> float | str:
    """A score, or why there is none."""
    if name == TOTAL:
        if row.open:
            return "must be graded again"
        return STATES["missing"][1] if row.absent else row.score
    one = row.records.get(name)
    state = row.states.get(name, "missing")
    return STATES[state][1] if one is None or state in UNSCORED else one.score


def _written(score: float, most: int, limit: str, sheet: Sheet, scale: bool) -> str:
    """The score as the platform writes numbers: with its decimal mark, stretched if asked."""
    limit = limit.strip()
    comma = bool(re.fullmatch(r"\d+,\d+", limit))
    try:
        possible = Decimal(limit.replace(",", ".") if comma else limit)
    except InvalidOperation:
        possible = Decimal(most)
    exact = Decimal(str(score))
    if possible != most:
        if not scale:
            raise BadArgument(
                f"{sheet.name} has {limit} points where the course has {most}.",
                action="set the points of the assignment so on the platform, or give --scale",
            )
        exact = exact * possible / most
    shown = format(exact.quantize(Decimal("0.01"), ROUND_HALF_UP), "f")
    return shown.replace(".", ",") if comma else shown


def _assignment(sheet: Sheet, number: str) -> int:
    found = [i for i, name in enumerate(sheet.heading) if name.endswith(f"({number})")]
    return found[0] if len(found) == 1 else sheet.column(number)


def _named(sheet: Sheet, book: Book) -> dict[str, int]:
    """Columns of assignments whose heading contains an exercise's name as a word."""
    found: dict[str, int] = {}
    for at, heading in enumerate(sheet.heading):
        title, number, _ = re.split(r"(\(\d+\))?$", heading.strip(), maxsplit=1)
        for name in set(re.findall(r"[a-z0-9]+", title.casefold())) & set(book.points):
            if number and name in found:
                raise BadArgument(
                    f"{sheet.name} has two columns for {name}.",
                    action=f"choose one: --assign {name}=NUMBER",
                )
            if number:
                found[name] = at
    if not found:
        raise BadArgument(
            f"No heading in {sheet.name} names an exercise; it has {sheet.shown}.",
            action="say where scores go: --assign total=NUMBER, the number in brackets",
        )
    return found
