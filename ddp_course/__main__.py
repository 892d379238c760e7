"""The course from a shell: python -m ddp_course COMMAND.

    doctor              can the course run on this machine?
    prepare NAME        download a data set, once
    run JOB [-- …]      launch a job, or any script that torchrun can run, and wait for it
    diagnose [FOLDER]   what happened in a run, and what to do
    start, update       your own copies of lessons and exercises; what you change stays
    check [EXERCISE …]  check exercises; watch checks them whenever they are saved
    hint EXERCISE       help, one step at a time: --more, --solution
    restore EXERCISE    put its file back as it was given; what you had is kept
    diff EXERCISE       what you have changed
    list, progress      all exercises, and how far you are
    grade DIR           a class's submissions, for instructors; then report, export, regrade

Exit codes: 0 well, 1 not (a failed run, a check not passed, a problem found), 2 a wrong request,
3 something must be graded again, 4 no sandbox to grade in, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from ddp_course.commands import grading, learning, running, shell

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in grading.COMMANDS:
        return grading.hand_over(words)
    parser = argparse.ArgumentParser(prog="python -m ddp_course", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(takes_flags=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for family in (running, learning, grading):
        family.add(commands)
    end = words.index("--") if "--" in words else len(words)
    given, unknown = parser.parse_known_args(words[:end])
    if unknown and given.takes_flags:
        parser.error(f"no flag {unknown[0]} of `run`; the job's own flags come after --")
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given.flags = words[end + 1 :]
    command: Command = given.command
    if given.flags and not given.takes_flags:
        parser.error("only `run` passes what follows -- on to a job")
    return shell.run(lambda: command(given), anywhere=words[:1] == ["doctor"])


if __name__ == "__main__":
    sys.exit(main())
