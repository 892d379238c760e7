"""Commands for instructors: grade, regrade, and those that read what was graded."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument, CannotRun
from ddp_grading import gradebook

NO_SANDBOX, OURS = 4, 3  # exit codes


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    doctor = commands.add_parser("doctor", help="does a job run in the sandbox here?")
    doctor.set_defaults(command=_doctor)
    _add_grade(commands, "grade", "grade a folder of submissions; goes on where it was")
    _add_grade(commands, "regrade", "grade again what has been graded already")
    gradebook.add(commands)


def _doctor(given: argparse.Namespace) -> int:
    from ddp_grading.box import try_sandbox
    from ddp_grading.sandbox import NoSandbox

    try:
        print(try_sandbox())
    except NoSandbox as error:
        print(error)
        return NO_SANDBOX
    return 0


def _add_grade(commands: Any, name: str, what: str) -> None:
    from ddp_grading import policy

    parser = commands.add_parser(name, help=what, description=f"{what}.".capitalize())
    parser.add_argument("folder", type=Path, metavar="DIR", help="the submissions")
    parser.add_argument("--roster", type=Path, required=True, metavar="CSV", help="the class")
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


def _grade(given: argparse.Namespace) -> int:
    from ddp_grading import batch, policy, report, roster
    from ddp_grading.sandbox import NoSandbox

    rules = policy.from_flags(given)
    options = batch.Options(
        jobs=given.jobs,
        exercises=tuple(_exercise(name) for name in given.exercise),
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
        print("What was graded is kept; the same command goes on from here.", file=sys.stderr)
        raise
    except NoSandbox as error:
        print(error, file=sys.stderr)
        return NO_SANDBOX
    except BadArgument:
        raise
    except CannotRun as error:
        print(error, file=sys.stderr)
        return OURS
    print(report.summary(given.out, students))
    for path, why in outcome.strangers:
        print(f"not graded: {report.plain(path.name)}: {why}")
    for student, notes in sorted(outcome.notes.items()):
        for note in notes:
            print(f"{report.plain(student)}: {report.plain(note)}")
    took = batch.span(time.monotonic() - began)
    print(f"{outcome.graded} graded in {took}, {outcome.skipped} were graded before: {given.out}")
    return outcome.exit_code


def _exercise(name: str) -> str:
    from ddp_course.checks.exercises import find

    return find(name).name


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
