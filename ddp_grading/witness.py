"""The second witness: did the ranks really talk to each other?

Right values alone could have passed through a file or shared memory. The sandbox has a network of
its own, so the bytes on its loopback, read from outside between the inputs and the last answer, are
those of this job. A manifest states the least and the most that a right answer moves.

What it cannot see: somebody who moves useless bytes besides. That takes more understanding of the
exercise than its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddp_course.checks.manifest import Exercise
from ddp_course.checks.supervisor import Gathered
from ddp_course.checks.verdict import Result

REQUIRED = ("traffic",)
_MOST, _MOST_BESIDES = 30, 16 << 20  # no right answer comes near: generous, lest one is refused
MISTAKE = "no communication"
HINT = "The ranks must tell each other by torch.distributed, and by nothing else."
WASTE = "more communication than reported"
WASTE_HINT = "Leave out what is communicated, or trained, more often than the target asks for."


@dataclass(frozen=True)
class Witness:
    """What one observer says of a job; `said` is for the reader when it does not agree."""

    agrees: bool
    said: str = ""


def traffic(exercise: Exercise, gathered: Gathered) -> Witness | None:
    """Whether the job's network carried what a right answer moves; None: nobody looked."""
    moved = gathered.bytes_moved
    if moved is None:
        return None
    least = exercise.moves(len(gathered.observations))
    if moved < least:
        return Witness(
            False,
            f"The values are right, but only {moved:,} bytes went between the ranks; a right "
            f"answer moves at least {least:,}. They came another way than by communication.",
        )
    most = _MOST * least + _MOST_BESIDES
    if moved > most:
        return Witness(
            False,
            f"The values are right, but {moved:,} bytes went between the ranks; a right answer "
            f"moves at most {most:,}.",
        )
    return Witness(True)


def heed(
    exercise: Exercise, results: tuple[Result, ...], seen: Mapping[str, Witness | None]
) -> tuple[Result, ...]:
    """A check passes only if every required witness is there and agrees.

    One that disagrees makes the first check that would pass a failed one, and blocks those after
    it. One that is missing is our fault, and no result.
    """
    if exercise.talks and any(one.status == "pass" for one in results):
        for name in REQUIRED:
            witness = seen.get(name)
            if witness is None:
                message = f"The {name} between the ranks could not be read."
                return tuple(_changed(one, "infra", message) for one in results)
            if not witness.agrees:
                first = next(i for i, one in enumerate(results) if one.status == "pass")
                return (
                    *results[:first],
                    _changed(results[first], "fail", witness.said, MISTAKE, HINT),
                    *(_changed(one, "blocked", "") for one in results[first + 1 :]),
                )
    return results


def spare(
    exercise: Exercise, results: tuple[Result, ...], gathered: Gathered
) -> tuple[Result, ...]:
    """A check that is about moving little passes only if little was moved."""
    moved, ranks = gathered.bytes_moved or 0, len(gathered.observations)
    found = {one.id: one for one in results}
    lost: set[str] = set()
    for check in exercise.checks:
        one, most = found[check.id], check.most(ranks) if check.most else moved
        said = (
            f"The ranks report what was asked for, but {moved:,} bytes went between them; a "
            f"right answer moves at most {most:,}."
        )
        if not lost.isdisjoint(check.depends):
            found[check.id] = _changed(one, "blocked", "")
        elif one.status == "pass" and moved > most:
            found[check.id] = _changed(one, "fail", said, WASTE, WASTE_HINT)
        if found[check.id] is not one:
            lost.add(check.id)
    return tuple(found.values())


def _changed(one: Result, status: str, message: str, mistake: str = "", hint: str = "") -> Result:
    return Result(one.id, one.title, status, one.max_points, message, one.why, mistake, hint)
