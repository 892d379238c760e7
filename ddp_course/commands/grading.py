"""The instructor's commands. They belong to `python -m ddp_grading`, which runs them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from typing import Any

COMMANDS = {
    "grade": "grade a folder of submissions, for instructors",
    "regrade": "grade again what has already been graded",
    "report": "how a graded class did",
    "export": "a graded class for other programs",
}


def add(commands: Any) -> None:
    """List these commands in a parser's help; their flags are ddp_grading's."""
    for name, what in COMMANDS.items():
        commands.add_parser(name, help=what, add_help=False)


def hand_over(words: Sequence[str]) -> int:
    """Run `python -m ddp_grading WORDS` in this process. → its exit code"""
    before = sys.argv
    sys.argv = ["ddp_grading", *words]
    try:
        runpy.run_module("ddp_grading", run_name="__main__", alter_sys=True)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    finally:
        sys.argv = before
    return 0
