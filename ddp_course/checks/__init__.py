"""Exercises checked by real runs: `check("ex00")` → a Verdict.

    manifest     what an exercise is: its checks, points, oracle, known mistakes and their hints
    ex00_… ex02_…  one manifest each, under the exercise's own stem
    exercises    all of them by name, and where their files are
    files        the learner's file: is there anything to run, what was given, putting it back
    driver       the script that the ranks run: loads the learner's file, calls it, reports
    agreed       what driver and oracles must agree on
    evidence     what passes between ranks and supervisor: a JSON header and raw tensor bytes
    supervisor   draws the inputs, hands each rank its own, gathers the evidence
    judge        evidence against the oracle → verdict
    verdict      the result, which draws itself
    live         what the ranks do meanwhile
    record       what a learner has done so far
    hints        help, one step at a time

The verdict is computed here, outside the ranks; no evidence means no points. This is the learning
mode: it runs the learner's file without a sandbox and does not resist tampering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddp_course.checks.files import Restored
    from ddp_course.checks.hints import Hint
    from ddp_course.checks.record import Progress
    from ddp_course.checks.verdict import Verdict


def check(exercise: str) -> Verdict:
    """Run an exercise's file as real ranks and judge what they did.

    `exercise` is its short name, for instance "ex02". The file is taken from `exercises/`, or from
    the folder that the environment variable DDP_COURSE_EXERCISES names. While the ranks run, each
    one's state is shown.

    Raises BadArgument for a name that no exercise has. Everything that the learner's file does
    wrong is a Verdict, not an exception.
    """
    from ddp_course.checks import judge

    return judge.check(exercise)


def hint(exercise: str, *, more: bool = False, solution: bool = False) -> Hint:
    """Help with an exercise, beginning with the mistake that its last check found.

    more      one step further: a question, the functions to read about, a skeleton
    solution  the answer

    Raises BadArgument for a name that no exercise has.
    """
    from ddp_course.checks import hints

    return hints.hint(exercise, more=more, solution=solution)


def restore(exercise: str) -> Restored:
    """Put an exercise's file back as it was given, and keep what was there; says where.

    Raises BadArgument for a name that no exercise has, CourseError if a file cannot be written.
    """
    from ddp_course.checks import files

    return files.restore(exercise)


def progress() -> Progress:
    """How far you are: every exercise, its best points and the state of its last check."""
    from ddp_course.checks import record

    return record.progress()
