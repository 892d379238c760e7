"""Exercise 00: your first collective.

Target: every rank calls `sum_over_ranks(number)` with a tensor of its own. On every rank it returns
the sum over all ranks, and the tensor that was passed in still holds what it held before.

Difficulty: easy, about 5 minutes.

Write the marked lines, then run `check("ex00")` in lesson 00. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex00_sum_over_ranks.py

API: torch.distributed.all_reduce(tensor) adds up over ranks and overwrites the tensor it is given.
"""

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def sum_over_ranks(number: torch.Tensor) -> torch.Tensor:
    """Return the sum of every rank's `number`, and leave `number` as it is."""
    # TODO: write from here …
    total = number.clone()
    dist.all_reduce(total)
    return total
    # … to here (2-3 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    mine = torch.tensor([dist.get_rank() + 1.0], device=place.device)
    total = sum_over_ranks(mine)
    log(mine=mine, total=total)  # with 3 ranks, total is [6.0] on each
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
