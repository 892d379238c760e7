"""Collecting results of unequal size: a collective takes tensors of one shape from all ranks.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/03_uneven_workloads/gather_unequal_sizes.py --way padded

Rank r has 2 + r predictions, each of them r.

    straight  gathered as they are: an error on every rank
    padded    the sizes first, then all tensors filled up to the largest, then cut again
    objects   pickled by all_gather_object: shorter to write, slower, and through the CPU

Look for: `gathered`, the predictions of all ranks in the order of ranks, the same on every rank.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--way", choices=["straight", "padded", "objects"], default="straight")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((2 + rank,), rank, device=place.device)
    log(mine=mine)

    if args.way == "objects":
        everyone = [None] * world_size
        dist.all_gather_object(everyone, mine.cpu())  # pickles
    else:
        sizes = [torch.zeros(1, dtype=torch.int64, device=place.device) for _ in range(world_size)]
        dist.all_gather(sizes, torch.tensor([len(mine)], device=place.device))
        sizes = [int(size) for size in sizes]  # of all ranks, on every rank
        if args.way == "padded":
            padded = mine.new_zeros(max(sizes))
            padded[: len(mine)] = mine
            everyone = [torch.empty_like(padded) for _ in sizes]
            dist.all_gather(everyone, padded)
            everyone = [one[:size] for one, size in zip(everyone, sizes, strict=True)]
        else:
            everyone = [mine.new_empty(size) for size in sizes]
            dist.all_gather(everyone, mine)  # Gloo refuses tensors of different sizes

    log(gathered=torch.cat(everyone))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
