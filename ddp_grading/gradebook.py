"""Commands for instructors that read what was graded: report, export."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument

FORMATS = ("csv", "json", "junit", "gradescope", "github", "canvas", "moodle")
INCOMPLETE = 3  # a record was refused, or something must be graded again


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    _add_report(commands)
    _add_export(commands)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser("report", help="what a graded class did, as text and as a page")
    _add_class(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="the page (OUT/report.html)")
    parser.set_defaults(command=_report)


def _add_export(commands: Any) -> None:
    parser = commands.add_parser("export", help="a graded class for other programs")
    _add_class(parser)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--to", type=Path, metavar="FILE", help="where to write (default: stdout)")
    parser.add_argument("--student", metavar="ID", help="one only (gradescope, github)")
    group = parser.add_argument_group("canvas and moodle")
    group.add_argument("--template", type=Path, metavar="FILE", help="the file exported there")
    group.add_argument(
        "--assign",
        action="append",
        default=[],
        metavar="EX=COLUMN",
        help="where the scores of an exercise, or the total, go: total=12345",
    )
    group.add_argument("--scale", action="store_true", help="stretch to the points named there")
    group.add_argument("--id-column", default="", metavar="HEADING", help="the column of ids there")
    parser.set_defaults(command=_export)


def _add_class(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder that was graded into")
    parser.add_argument("--roster", type=Path, metavar="CSV", help="the class (default: as graded)")
    parser.add_argument("--zone", default="UTC", help="of the roster's times (default UTC)")


def _report(given: argparse.Namespace) -> int:
    from ddp_grading import report

    book = _book(given)
    print(report.text(book))
    page = given.html or given.out / "report.html"
    _put(page, report.page(book))
    print(f"The page: {page}")
    return 0 if book.complete else INCOMPLETE


def _export(given: argparse.Namespace) -> int:
    from ddp_grading import exports, report, templates

    book = _book(given)
    filling = given.format in ("canvas", "moodle")
    if filling != bool(given.template):
        raise BadArgument(
            f"{given.format} {'needs' if filling else 'takes no'} --template.",
            action="give the file that you exported there" if filling else "leave it out",
        )
    each = given.format in ("gradescope", "github")
    if given.student and not each:
        raise BadArgument(f"{given.format} takes no --student.", action="leave it out")
    if not filling and (given.assign or given.scale or given.id_column):
        raise BadArgument(f"{given.format} takes no --assign, --scale or --id-column.")
    if given.to and given.template and given.to.resolve() == given.template.resolve():
        raise BadArgument("--to would overwrite the template.", action="name another file")
    notes = [f"refused, not counted: {one}" for one in book.refused]
    notes += [f"{name}: has a record, not in the roster" for name in book.strangers]
    data: str | bytes
    if each:
        return _each(given, book, notes)
    if filling:
        fill = templates.fill_canvas if given.format == "canvas" else templates.fill_moodle
        filled = fill(
            book,
            given.template,
            _assigned(given.assign),
            scale=given.scale,
            id_column=given.id_column,
        )
        notes += filled.left_out
        notes.append(f"{filled.filled} people have scores in the file")
        data = filled.data
    else:
        make = {"csv": exports.as_csv, "json": exports.as_json, "junit": exports.as_junit}
        data = make[given.format](book)
    _give(given.to, data)
    for note in notes:
        print(report.plain(note), file=sys.stderr)
    return 0 if book.complete else INCOMPLETE


def _each(given: argparse.Namespace, book: Any, notes: list[str]) -> int:
    """One file for each student; with --student, or in a class of one, just that."""
    from ddp_grading import exports, report, results

    make = exports.as_gradescope if given.format == "gradescope" else exports.as_github
    rows = [row for row in book.rows if given.student in (None, row.student.id)]
    if given.student and not rows:
        raise BadArgument(f"There is no student {given.student!r}.", action="see `report`")
    if len(rows) == 1:
        _give(given.to, make(rows[0]))
    elif given.to is None or given.to.suffix == ".json":
        raise BadArgument(
            f"{given.format} has one file for each of {len(rows)} students.",
            action="name a folder: --to FOLDER, or one of them: --student ID",
        )
    else:
        for row in rows:
            _put(given.to / f"{results.folder_name(row.student.id)}.json", make(row))
        notes.append(f"{len(rows)} files in {given.to}")
    for note in notes:
        print(report.plain(note), file=sys.stderr)
    return INCOMPLETE if any(row.open for row in rows) else 0


def _book(given: argparse.Namespace) -> Any:
    from ddp_grading import report, roster

    roster.find_zone(given.zone)
    students = roster.read(given.roster, given.zone) if given.roster else None
    return report.gather(given.out, students)


def _assigned(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if bad := [word for word, (name, _, to) in zip(words, pairs, strict=True) if not (name and to)]:
        raise BadArgument(f"--assign {bad[0]!r}", action="write --assign ex02=12345")
    return {name: to for name, _, to in pairs}


def _give(path: Path | None, data: str | bytes) -> None:
    if path:
        _put(path, data)
    else:
        sys.stdout.buffer.write(data.encode() if isinstance(data, str) else data)
        sys.stdout.buffer.flush()


def _put(path: Path, data: str | bytes) -> None:
    from ddp_grading import results

    try:
        results.put(path, data)
    except OSError as error:
        raise BadArgument(f"{path} cannot be written: {error.strerror}.") from None
