"""Exercises checked by real runs: `check("ex00")` → a Verdict.

    manifest     what an exercise is: its checks, points, oracle, known mistakes and their hints
    ex00_… ex02_…  one manifest each, under the exercise's own stem
    driver       the script that the ranks run: loads the learner's file, calls it, reports
    evidence     what passes between ranks and supervisor: a JSON header and raw tensor bytes
    supervisor   draws the inputs, hands each rank its own, gathers the evidence
    judge        evidence against the oracle → verdict
    verdict      the result, which draws itself

The verdict is computed here, outside the ranks; no evidence means no points. This is the learning
mode: it runs the learner's file without a sandbox and does not resist tampering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddp_course.checks.verdict import Verdict


def check(exercise: str) -> Verdict:
    """Run an exercise's file as real ranks and judge what they did.

    `exercise` is its short name, for instance "ex02". The file is taken from `exercises/`, or from
    the folder that the environment variable DDP_COURSE_EXERCISES names.

    Raises BadArgument for a name that no exercise has. Everything that the learner's file does
    wrong is a Verdict, not an exception.
    """
    from ddp_course.checks.judge import judge

    return judge(exercise)
