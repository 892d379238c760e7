"""The ranks build different models: DDP's constructor compares them, and one of them fails.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/crash_different_models.py --differ shape --timeout-s 3

    shape  the last rank's layer is wider (its vocabulary was counted on its own share of the data)
    count  the last rank has a layer more
    none   all build the same

Look for: who fails. With `shape` the last rank is told at once, and rank 0 learns only that its
peer has gone; with `count` each rank names the two numbers.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--differ", choices=["shape", "count", "none"], default="shape")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    odd = rank == world_size - 1 and world_size > 1

    words = 17 if odd and args.differ == "shape" else 16  # distinct words in this rank's texts
    layers = [nn.Linear(words, 8), nn.Linear(8, 1)]
    if odd and args.differ == "count":
        layers.append(nn.Linear(1, 1))
    model = nn.Sequential(*layers).to(place.device)
    log(doing="DDP(model)", parameters=sum(p.numel() for p in model.parameters()))

    model = DDP(model, device_ids=place.device_ids)
    model(torch.ones(4, words, device=place.device)).sum().backward()
    log(doing="done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
