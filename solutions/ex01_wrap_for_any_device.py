"""Exercise 01: one `wrap` for a laptop, a GPU server and a cluster.

Target: every rank calls `wrap(model, local_rank, local_world_size, gpus)` and gets its model back,
on the right device and wrapped in DDP:

    if every rank on this machine can have a GPU of its own, on the GPU with the number of the
        local rank, and DDP is told that number;
    otherwise on the CPU, and DDP is told no device: NCCL cannot share a GPU between two ranks.

local_rank, local_world_size: this rank's number among those on its machine, and how many they are;
gpus: how many GPUs the machine has.

Difficulty: medium, about 10 minutes.

Write the marked lines, then run `check("ex01")` in lesson 01. The check also pretends machines with
GPUs: it hands your function their numbers, and writes down what it asks for. To run this file:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex01_wrap_for_any_device.py

API: model.to(device) with "cpu" or f"cuda:{number}"; DDP(model, device_ids=[number] or None).
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def wrap(model: nn.Module, local_rank: int, local_world_size: int, gpus: int) -> nn.Module:
    """Return `model` on this rank's device, wrapped in DDP."""
    # TODO: write from here …
    if gpus >= local_world_size:
        return DDP(model.to(f"cuda:{local_rank}"), device_ids=[local_rank])
    return DDP(model.to("cpu"), device_ids=None)
    # … to here (3-5 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    local_rank, ranks_here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    model = wrap(nn.Linear(2, 1), local_rank, ranks_here, torch.cuda.device_count())
    x = torch.full((4, 2), dist.get_rank() + 1.0, device=place.device)  # rank r: all r + 1
    model(x).mean().backward()
    log(gradient=model.module.weight.grad)  # with 3 ranks, [[2.0, 2.0]] on each: it is averaged
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
