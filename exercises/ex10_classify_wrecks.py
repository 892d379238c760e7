"""Exercise 10: five unlabelled wrecks: what happened first, and on which rank?

Target: `classify(wreck)` gets what was left of a job of four ranks that failed, and returns what
happened and on which rank, for example ("missing", 2):

    killed     the rank was killed from outside (exit code -9); such a rank leaves no ledger
    raised     the rank raised an error of its own
    missing    the rank never came to a collective that the others waited in
    operation  the rank called a different collective than the others
    size       the rank called the same collective with a tensor of a different size

In each wreck one rank is at fault, and one only. "Connection closed by peer" and "Timed out" say
what happened *to* a rank; an exit code of -6 means that Gloo ended a rank that received more than
it expected. The five wrecks in EXAMPLES have one fault each: decide by eye first.

Difficulty: medium, about 20 minutes.

Write the marked lines, then run `check("ex10")` in lesson 10. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex10_classify_wrecks.py

API: list.index, list.count, enumerate(list); zip(*ledgers) goes through the ledgers row by row.
"""

from typing import NamedTuple

import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


class Wreck(NamedTuple):
    """What four ranks left; each list has one entry for each rank."""

    exit_codes: list[int]
    errors: list[str]  # the last line of each rank's error output, "" if there is none
    ledgers: list[list[str]]  # the collectives that each rank entered: "all_reduce 4"


CLOSED, LATE = "Connection closed by peer", "Timed out waiting 1500ms"
A, B = "all_reduce 4", "broadcast 16"
EXAMPLES = [
    Wreck([1, 1, -15, 1], [LATE, LATE, "", LATE], [[A, A, A], [A, A, A], [A, A], [A, A, A]]),
    Wreck([1, 1, 1, 1], [LATE, LATE, LATE, LATE], [[A, B, B], [A, B, A], [A, B, A], [A, B, A]]),
    Wreck([1, -9, 1, 1], [CLOSED, "", CLOSED, CLOSED], [[A, A], [], [A, A], [A, A]]),
    Wreck(
        [1, 1, -6, 1],
        [CLOSED, CLOSED, "", CLOSED],
        [[B, A], [B, A], [B, A], [B, "all_reduce 5"]],
    ),
    Wreck(
        [1, 1, 1, 1],
        [CLOSED, CLOSED, CLOSED, "ValueError: image 17 has four channels"],
        [[A, A], [A, A], [A, A], [A]],
    ),
]


def classify(wreck: Wreck) -> tuple[str, int]:
    """What happened first, and on which rank."""
    # TODO: write from here …
    raise NotImplementedError("classify is yours to write")
    # … to here (10-14 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    for number, wreck in enumerate(EXAMPLES):
        log(wreck=number, answer=str(classify(wreck)))
    dist.barrier()  # a rank that leaves early breaks the line to those still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
