"""The sum of all ranks' tensors on all ranks, in four ways: equal numbers, unequal traffic.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/02d_collectives/sum_by_hand.py --way ring

    root      all send their tensor to rank 0, which adds them up and sends the sum to each
    gather    each sends its tensor to each, and adds up what it got, its own first
    ring      each sends one piece at a time to the next rank: first to add up, then to hand around
    built_in  dist.all_reduce

Look for: how much the busiest rank sends (the notebook's `collectives` counts it), and `differing`:
the numbers that are not bit for bit those of rank 0.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--way", choices=["root", "gather", "ring", "built_in"], default="ring")
parser.add_argument("--kib", type=int, default=1024, help="size of each rank's tensor")


def sum_at_root(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
        return
    theirs = torch.empty_like(tensor)
    for other in range(1, world_size):
        dist.recv(theirs, src=other)
        tensor += theirs
    for other in range(1, world_size):
        dist.send(tensor, dst=other)


def sum_everywhere(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    others = [(rank + i) % world_size for i in range(1, world_size)]
    own = tensor.clone()
    sends = [dist.isend(own, dst=other) for other in others]
    for other in others:
        theirs = torch.empty_like(tensor)
        dist.recv(theirs, src=other)
        tensor += theirs  # in an order of my own: rounding differs from rank to rank
    for send in sends:
        send.wait()


def sum_around_ring(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pieces = tensor.tensor_split(world_size)  # views: what is written there is in `tensor`
    for step in range(2 * (world_size - 1)):
        mine = pieces[(rank - step) % world_size]  # what I received in the step before
        next_one = pieces[(rank - step - 1) % world_size]
        theirs = torch.empty_like(next_one)
        send = dist.isend(mine, dst=(rank + 1) % world_size)
        dist.recv(theirs, src=(rank - 1) % world_size)
        send.wait()
        if step < world_size - 1:
            next_one += theirs  # the reduce-scatter: sums grow
        else:
            next_one.copy_(theirs)  # the all-gather: complete sums go around


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(dist.get_rank())
    own = torch.randn(args.kib * 256, device=place.device)  # float32: 4 bytes each
    wanted = own.double()
    dist.all_reduce(wanted)

    tensor = own.clone()
    ways = {"root": sum_at_root, "gather": sum_everywhere, "ring": sum_around_ring}
    ways.get(args.way, dist.all_reduce)(tensor)
    log(distance=(tensor - wanted).abs().max())
    from_rank_0 = tensor.clone()
    dist.broadcast(from_rank_0, src=0)
    log(differing=int((tensor != from_rank_0).sum()), numbers=len(tensor))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
