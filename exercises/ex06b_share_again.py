"""Exercise 06b: share out the rest of an epoch when the number of ranks has changed.

Target: a job has trained on the first `done` samples of the epoch's `order`, with any number of
ranks. Now `world_size` ranks continue. `my_batches` returns the batches of this rank, a list of
lists of samples: in each step, the ranks together train on the next `global_batch` samples of the
order, the same ones that a job which never changed would take.

- All ranks have equally many samples in a step; `global_batch` divides by every world size.
- If fewer than `global_batch` samples are left at the end, they are dropped.

Difficulty: medium, about 10 minutes.

Write the marked lines, then run `check("ex06b")` in lesson 06. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex06b_share_again.py

API: order[begin:end], batch[begin::step], range(begin, end, step).
"""

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def my_batches(
    order: list[int], done: int, global_batch: int, rank: int, world_size: int
) -> list[list[int]]:
    """This rank's batches for what is left of the epoch."""
    # TODO: write from here …
    raise NotImplementedError("my_batches is yours to write")
    # … to here (3-6 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0)).tolist()
    # 12 of the 40 samples are done; with 3 ranks, each has 4 batches of 2 samples.
    log(batches=my_batches(order, 12, 2 * world_size, rank, world_size))
    dist.barrier()  # a rank that leaves early breaks the line to those still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
