"""The instructor's tool from a shell: python -m ddp_grading COMMAND.

    doctor              does a job run in the sandbox here?
    grade DIR           grade a class's submissions; the same command again resumes
    regrade DIR         grade again what has already been graded
    report OUT          how the class did, as text and as a page
    export OUT FORMAT   scores for other programs

`python -m ddp_course grade …` does the same.

Exit codes: 0 all passed, 1 some did not, 2 a wrong request, 3 something must be graded again,
4 no sandbox to grade in, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ddp_course.commands import shell
from ddp_grading import commands


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ddp_grading", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands.add(parser.add_subparsers(metavar="COMMAND", required=True))
    given = parser.parse_args(arguments)
    return shell.run(lambda: int(given.command(given)))


if __name__ == "__main__":
    sys.exit(main())
