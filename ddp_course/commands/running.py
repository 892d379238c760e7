"""Commands that prepare, launch and explain jobs: doctor, prepare, run."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from typing import Any

from ddp_course.errors import BadArgument


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    _add_doctor(commands)
    _add_prepare(commands)
    _add_run(commands)


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
    parser.set_defaults(command=_run, takes_flags=True)


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
