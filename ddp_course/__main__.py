"""The course from a shell: python -m ddp_course COMMAND.

    doctor              can the course run on this machine?
    prepare NAME        download a data set, once
    run JOB [-- …]      launch a job and wait for it
    check [EXERCISE …]  check exercises

Exit codes: 0 well, 1 not (a failed run, a check not passed, a problem found), 2 a wrong request,
130 interrupted.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument, CourseError

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ddp_course", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_doctor, _add_prepare, _add_run, _add_check):
        add(commands)
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    given, unknown = parser.parse_known_args(words[:end])
    if unknown and given.command is _run:
        parser.error(f"no flag {unknown[0]} of `run`; the job's own flags come after --")
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given.flags = words[end + 1 :]
    command: Command = given.command
    if given.flags and command is not _run:
        parser.error("only `run` passes what follows -- on to a job")
    try:
        return command(given)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


def knobs_of(flags: Sequence[str]) -> dict[str, Any]:
    """Flags as a shell gives them, as knobs of `launch`: --bucket-mb 1 is {"bucket_mb": 1}."""
    knobs: dict[str, Any] = {}
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise BadArgument(
                f"After -- comes {flag!r}, which is no flag.",
                action="give the job's flags so: -- --bucket-mb 1 --steps 20",
            )
        name, equals, value = flag[2:].partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value, equals = rest.pop(0), "="
        knobs[name.replace("-", "_")] = _literal(value) if equals else True
    return knobs


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, int | float) else text


def _add_doctor(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="can the course run on this machine?")
    parser.set_defaults(command=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from ddp_course.machine import doctor

    report = doctor()
    print(report)
    return 0 if report.ok else 1


def _add_prepare(commands: Any) -> None:
    parser = commands.add_parser("prepare", help="download a data set, once")
    parser.add_argument("name", help="digits, mnist or fashion_mnist")
    parser.set_defaults(command=_prepare)


def _prepare(given: argparse.Namespace) -> int:
    from ddp_course.data import prepare

    print(f"{given.name} is ready in {prepare(given.name)}")
    return 0


def _add_run(commands: Any) -> None:
    parser = commands.add_parser("run", help="launch a job and wait for it", allow_abbrev=False)
    parser.add_argument("job", help="a job's name, or the path of a script")
    parser.add_argument("--ranks", type=int, default=2, help="how many processes (default 2)")
    parser.add_argument("--limit", type=float, default=60, metavar="S", help="seconds (default 60)")
    parser.add_argument("--trace", action="store_true", help="profile the steps")
    parser.add_argument("--cold", action="store_true", help="a plain torchrun, no warm start")
    parser.epilog = "What follows -- goes to the job: run overlap_buckets -- --bucket-mb 1"
    parser.set_defaults(command=_run)


def _run(given: argparse.Namespace) -> int:
    from ddp_course.launcher import launch

    run = launch(
        given.job,
        ranks=given.ranks,
        limit_s=given.limit,
        trace=given.trace,
        warm=not given.cold,
        wait=True,
        **knobs_of(given.flags),
    )
    return 0 if run.ok else 1


def _add_check(commands: Any) -> None:
    parser = commands.add_parser("check", help="check exercises")
    parser.add_argument("exercises", nargs="*", help="such as ex00 (default: all)")
    parser.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> int:
    from ddp_course.checks import check

    folder = Path(__file__).resolve().parent.parent / "exercises"
    names = given.exercises or sorted(path.stem.split("_")[0] for path in folder.glob("ex*.py"))
    verdicts = [check(name) for name in names]
    for verdict in verdicts:
        print(verdict)
    return 0 if verdicts and all(verdict.passed for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
