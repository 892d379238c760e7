"""Commands for learners at the exercises: check."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add these commands to a parser's sub-parsers."""
    parser = commands.add_parser("check", help="check exercises")
    parser.add_argument("exercises", nargs="*", help="such as ex00 (default: all)")
    parser.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> int:
    from ddp_course.checks import check

    folder = Path(__file__).resolve().parents[2] / "exercises"
    names = given.exercises or sorted(path.stem.split("_")[0] for path in folder.glob("ex*.py"))
    verdicts = [check(name) for name in names]
    for verdict in verdicts:
        print(verdict)
    return 0 if verdicts and all(verdict.passed for verdict in verdicts) else 1
