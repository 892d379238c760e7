"""Exercise 02b: partition the data, the job of a DistributedSampler.

Target: every rank calls `my_indices(size, epoch, rank, world_size)` and gets the list of the
samples that it is to train on in this epoch, as numbers from 0 to size - 1.

- Together the ranks have every sample at least once.
- All have equally many, and no more than that takes: if the data do not divide, a few samples come
  twice. (There may be fewer samples than ranks, by one.)
- The order is shuffled anew in each epoch, before it is shared out, so that a rank does not always
  get the same samples. Asked again for the same epoch, it is the same.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex02b")` in lesson 02b. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex02b_partition_data.py

API: torch.Generator().manual_seed(number), torch.randperm(size, generator=generator).tolist();
math.ceil(size / world_size). No rank needs to ask another.
"""

import math

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def my_indices(size: int, epoch: int, rank: int, world_size: int) -> list[int]:
    """Return this rank's share of the numbers 0 … size - 1 in this epoch."""
    # TODO: write from here …
    order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
    count = math.ceil(size / world_size)
    order += order[: count * world_size - size]
    return order[rank::world_size]
    # … to here (4-5 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    for epoch in (0, 1, 0):
        mine = my_indices(10, epoch, dist.get_rank(), dist.get_world_size())
        log(epoch=epoch, mine=mine)  # with 3 ranks, four each; epoch 0 is twice the same
    dist.barrier()  # who leaves early breaks the line to those who are still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
