"""The instructor's commands: doctor, grade, regrade, report, export."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from ddp_course.checks.exercises import find
from ddp_course.errors import BadArgument, CannotRun
from ddp_grading import exports, policy, report, roster, store, templates
from ddp_grading.report import Book, plain

NO_SANDBOX, AGAIN = 4, 3  # exit codes; 3: something must be graded again
EACH = ("gradescope", "github")  # formats with one file for each student
FILLED = ("canvas", "moodle")  # formats that fill a file
FORMATS = ("csv", "json", "junit", *EACH, *FILLED)
_DAY = "a due date without a time of day means the end of that day"


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    doctor = commands.add_parser("doctor", help="does a job run in the sandbox here?")
    doctor.set_defaults(command=_doctor)
    _add_grade(commands, "grade", "grade a folder of submissions; the same command again resumes")
    _add_grade(commands, "regrade", "grade again what has already been graded")
    shown = commands.add_parser("report", help="how a graded class did, as text and as a page")
    _add_class(shown)
    shown.add_argument("--html", type=Path, metavar="FILE", help="the page (OUT/report.html)")
    shown.set_defaults(command=_report)
    _add_export(commands)


def _add_grade(commands: Any, name: str, what: str) -> None:
    parser = commands.add_parser(name, help=what, description=f"{what}.".capitalize())
    parser.add_argument("folder", type=Path, metavar="DIR", help="the submissions")
    parser.add_argument(
        "--roster", type=Path, required=True, metavar="CSV", help=f"the class; {_DAY}"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="for the results")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="at a time (1)")
    parser.add_argument("--exercise", action="append", default=[], metavar="EX", help="only this")
    parser.add_argument("--student", action="append", default=[], metavar="ID", help="only this")
    parser.add_argument(
        "--unsafe-no-sandbox",
        action="store_true",
        help="for files that you have read and trust; every row of the results says so",
    )
    policy.add_flags(parser)
    parser.set_defaults(command=_grade, again=name == "regrade")


def _add_class(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder that was graded into")
    parser.add_argument(
        "--roster", type=Path, metavar="CSV", help=f"the class (default: as graded); {_DAY}"
    )
    parser.add_argument("--zone", default="UTC", help="of the roster's times (default UTC)")


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


def _doctor(given: argparse.Namespace) -> int:
    from ddp_grading.box import try_sandbox
    from ddp_grading.sandbox import NoSandbox

    try:
        print(try_sandbox())
    except NoSandbox as error:
        print(error)
        return NO_SANDBOX
    return 0


def _grade(given: argparse.Namespace) -> int:
    from ddp_grading import batch
    from ddp_grading.sandbox import NoSandbox

    rules = policy.from_flags(given)
    options = batch.Options(
        jobs=given.jobs,
        exercises=tuple(find(name).name for name in given.exercise),
        students=tuple(given.student),
        again=given.again,
        unsafe=given.unsafe_no_sandbox,
        policy=rules,
    )
    students = roster.read(given.roster, zone=rules.zone)
    began = time.monotonic()
    try:
        outcome = batch.grade(
            given.folder, students, given.out, options, say=_say, hidden=[given.roster.parent]
        )
    except KeyboardInterrupt:
        _say("What was graded is kept; the same command resumes there.")
        raise
    except NoSandbox as error:
        _say(str(error))
        return NO_SANDBOX
    except CannotRun as error:
        _say(str(error))
        return AGAIN
    print(report.summary(given.out, students))
    for path, why in outcome.strangers:
        print(f"not graded: {plain(path.name)}: {why}")
    for student, notes in sorted(outcome.notes.items()):
        for note in notes:
            print(f"{plain(student)}: {plain(note)}")
    took = batch.span(time.monotonic() - began)
    print(f"{outcome.graded} graded in {took}, {outcome.skipped} were graded before: {given.out}")
    return outcome.exit_code


def _report(given: argparse.Namespace) -> int:
    book = _book(given)
    print(report.text(book))
    page = given.html or given.out / "report.html"
    _write(page, report.page(book))
    print(f"The page: {page}")
    return 0 if book.complete else AGAIN


def _export(given: argparse.Namespace) -> int:
    book = _book(given)
    _check(given)
    notes = [f"not counted: {one}" for one in book.refused]
    notes += [f"{name}: has results, but is not in the roster" for name in book.strangers]
    if given.format in EACH:
        return _each(given, book, notes)
    if given.format in FILLED:
        filled = _filled(given, book)
        notes += [*filled.left_out, f"{filled.filled} people have scores in the file"]
        _give(given.to, filled.data)
    else:
        make = {"csv": exports.as_csv, "json": exports.as_json, "junit": exports.as_junit}
        _give(given.to, make[given.format](book))
    _tell(notes)
    return 0 if book.complete else AGAIN


def _check(given: argparse.Namespace) -> None:
    """Raises BadArgument for flags that do not fit the format."""
    if given.format in FILLED and not given.template:
        raise BadArgument(
            f"{given.format} needs --template.", action="give the file that you exported there"
        )
    for flag in ("template", "assign", "scale", "id_column", "student"):
        if getattr(given, flag) and given.format not in (EACH if flag == "student" else FILLED):
            name = flag.replace("_", "-")
            raise BadArgument(f"{given.format} takes no --{name}.", action="leave it out")
    if given.to and given.template and given.to.resolve() == given.template.resolve():
        raise BadArgument("--to would overwrite the template.", action="name a different file")


def _filled(given: argparse.Namespace, book: Book) -> templates.Filled:
    assign = {}
    for word in given.assign:
        name, _, assign[name] = word.partition("=")
        if not (name and assign[name]):
            raise BadArgument(f"--assign {word!r}", action="write --assign ex02=12345")
    return templates.fill(
        book, given.template, given.format, assign, scale=given.scale, id_column=given.id_column
    )


def _each(given: argparse.Namespace, book: Book, notes: list[str]) -> int:
    """One file for each student; with --student, or in a class of one, just that."""
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
            _write(given.to / f"{store.folder_name(row.student.id)}.json", make(row))
        notes.append(f"{len(rows)} files in {given.to}")
    _tell(notes)
    return AGAIN if any(row.open for row in rows) else 0


def _book(given: argparse.Namespace) -> Book:
    roster.find_zone(given.zone)
    students = roster.read(given.roster, given.zone) if given.roster else None
    return report.gather(given.out, students)


def _give(path: Path | None, data: str | bytes) -> None:
    if path:
        _write(path, data)
    else:
        sys.stdout.buffer.write(data.encode() if isinstance(data, str) else data)
        sys.stdout.buffer.flush()


def _write(path: Path, data: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BadArgument(f"{path} cannot be written: {error.strerror}.") from None


def _tell(notes: list[str]) -> None:
    for note in notes:
        _say(plain(note))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
