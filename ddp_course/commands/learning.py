"""Commands for learners at the exercises: check, watch, hint, restore, list, diff, progress."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_course.errors import CourseError

if TYPE_CHECKING:
    from ddp_course.checks.manifest import Exercise
    from ddp_course.checks.verdict import Verdict

_LOOK_S = 0.25  # how often watched files are looked at


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    check = commands.add_parser("check", help="check exercises")
    check.add_argument("exercises", nargs="*", help="such as ex00 (default: all)")
    check.add_argument("--json", action="store_true", help="one JSON document, nothing else")
    check.set_defaults(command=_check)

    watch = commands.add_parser("watch", help="check an exercise again whenever it is saved")
    watch.add_argument("exercises", nargs="*", help="such as ex00 (default: all that change)")
    watch.set_defaults(command=_watch)

    hint = commands.add_parser("hint", help="help with an exercise, one step at a time")
    hint.add_argument("exercise")
    step = hint.add_mutually_exclusive_group()
    step.add_argument("--more", action="store_true", help="one step further")
    step.add_argument("--solution", action="store_true", help="an answer")
    hint.set_defaults(command=_hint)

    restore = commands.add_parser(
        "restore", aliases=["reset"], help="put an exercise's file back as it was given"
    )
    restore.add_argument("exercise")
    restore.set_defaults(command=_restore)

    for name, what in (
        ("start", "lay out your own copies of the lessons and exercises"),
        ("update", "bring them up to date; what you have changed stays"),
    ):
        copying = commands.add_parser(name, help=what)
        copying.add_argument("folder", nargs="?", type=Path, help="where (my_course)")
        copying.set_defaults(command=_lay_out)

    listing = commands.add_parser("list", help="all exercises and their state")
    listing.set_defaults(command=_progress)

    diff = commands.add_parser("diff", help="what you have changed; once passed, also the answer")
    diff.add_argument("exercise")
    diff.set_defaults(command=_diff)

    progress = commands.add_parser("progress", help="how far you are")
    progress.set_defaults(command=_progress)


def _check(given: argparse.Namespace) -> int:
    from ddp_course.checks.exercises import EXERCISES

    verdicts = []
    for one in _named(given.exercises) or list(EXERCISES.values()):
        verdicts.append(_checked(one.name, quiet=given.json))
        if not given.json:
            say(str(verdicts[-1]) + "\n" * (len(given.exercises) != 1))
    passed = all(verdict.passed for verdict in verdicts)
    if given.json:
        print(json.dumps(document(verdicts), indent=1))
    elif len(verdicts) > 1:
        say("\n".join(verdict.summary for verdict in verdicts))
    return 0 if passed else 1


def document(verdicts: list[Verdict]) -> dict[str, Any]:
    """What `check --json` prints. New fields may come; none changes its meaning or goes."""
    from ddp_course import __version__

    return {
        "version": 1,
        "course": __version__,
        "passed": all(verdict.passed for verdict in verdicts),
        "points": sum(verdict.points for verdict in verdicts),
        "max_points": sum(verdict.max_points for verdict in verdicts),
        "exercises": [verdict.as_dict() for verdict in verdicts],
    }


def _named(names: list[str]) -> list[Exercise]:
    """The exercises of these names, each once; a wrong name ends it before anything runs."""
    from ddp_course.checks.exercises import find

    return list({one.name: one for one in map(find, names)}.values())


def _checked(name: str, *, quiet: bool = False) -> Verdict:
    from ddp_course.checks import check, judge

    return judge.check(name, quiet=True) if quiet else check(name)


def say(text: str) -> None:
    """Print for a shell, also where the terminal's encoding lacks a character."""
    from ddp_course.checks.hints import in_a_shell

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = in_a_shell(text)
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _watch(given: argparse.Namespace) -> int:
    from ddp_course.checks.exercises import EXERCISES, exercise_file

    watched = _named(given.exercises) or list(EXERCISES.values())
    for one in _named(given.exercises):
        say(str(_checked(one.name)))
    names = ", ".join(one.name for one in watched)
    say(f"Watching {names}; save a file and it is checked. Ctrl-C ends it.")
    by_path = {exercise_file(one): one.name for one in watched}
    for path in changes(list(by_path)):
        say("\n" + str(_checked(by_path[path])))
    return 0


def changes(paths: list[Path]) -> Iterator[Path]:
    """Each file that has been saved with other contents than before, for ever.

    An editor may write in pieces, or put another file in its place, so that for a moment there is
    none: a change counts when two looks in a row find the same.
    """
    known = {path: _contents(path) for path in paths}
    seen = dict(known)
    while True:
        time.sleep(_LOOK_S)
        for path in paths:
            now = _contents(path)
            settled = now == seen[path]
            seen[path] = now
            if settled and now and now != known[path]:
                known[path] = now
                yield path


def _contents(path: Path) -> str:
    from ddp_course.checks import files

    try:
        return hashlib.sha256(files.read(path)).hexdigest()
    except CourseError:
        return ""


def _hint(given: argparse.Namespace) -> int:
    from ddp_course.checks import hints
    from ddp_course.checks.exercises import find

    one = find(given.exercise)
    say(str(hints.hint(one.name, more=given.more, solution=given.solution)))
    return 0


def _lay_out(given: argparse.Namespace) -> int:
    from ddp_course import copies

    say(str(copies.lay_out(given.folder or copies.find() or copies.HOME)))
    return 0


def _restore(given: argparse.Namespace) -> int:
    from ddp_course.checks import restore

    say(str(restore(given.exercise)))
    return 0


def _progress(given: argparse.Namespace) -> int:
    from ddp_course.checks import progress

    say(str(progress()))
    return 0


def _diff(given: argparse.Namespace) -> int:
    from ddp_course.checks import files, record
    from ddp_course.checks.exercises import find

    one = find(given.exercise)
    stub = files.differences(one, files.stub_text(one), "as given")
    say(stub or f"{one.stem}.py is as it was given.")
    if record.progress().of(one.name).passed:
        answer = files.differences(one, files.solution_text(one), "the solution")
        say(answer or f"{one.stem}.py is the solution, word for word.")
    else:
        say("Once it has passed, this also compares it with the solution.")
    return 0
