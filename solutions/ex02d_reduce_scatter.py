"""Exercise 02d: reduce-scatter by hand: sum over ranks, and leave each rank one piece.

Target: `reduce_scatter(pieces)` gets a list with one tensor for each rank, and returns the sum,
over all ranks, of piece number `rank`. Each rank sends world_size - 1 messages of one piece, by
send or isend, for instance around the ring. A collective sends more.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex02d")` in lesson 02d. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex02d_reduce_scatter.py

API: dist.isend(tensor, dst=rank), which begins to send and returns an object with wait();
dist.recv(tensor, src=rank), which fills a tensor that is there already: torch.empty_like(tensor).
"""

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def reduce_scatter(pieces: list[torch.Tensor]) -> torch.Tensor:
    """The sum over ranks of everybody's piece number `rank`; all pieces have one shape."""
    # TODO: write from here …
    rank, world_size = dist.get_rank(), dist.get_world_size()
    passing = pieces[(rank - 1) % world_size]
    for step in range(world_size - 1):
        received = torch.empty_like(passing)
        send = dist.isend(passing, dst=(rank + 1) % world_size)
        dist.recv(received, src=(rank - 1) % world_size)
        send.wait()
        passing = received + pieces[(rank - step - 2) % world_size]
    return passing
    # … to here (8-10 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    own = torch.arange(1.0, dist.get_world_size() + 1, device=place.device) * 10 ** dist.get_rank()
    log(own=own)  # rank 0: 1 2 3, rank 1: 10 20 30, rank 2: 100 200 300
    log(sum=reduce_scatter(list(own.split(1))))  # 111 on rank 0, 222 on rank 1, 333 on rank 2
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
