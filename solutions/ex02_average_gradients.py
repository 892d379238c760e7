"""Exercise 02: average the gradients by hand, the one thing that DDP adds to a training step.

Target: every rank has called backward() on data of its own, then calls `average_gradients(model)`.
Afterwards each gradient is the mean over all ranks, on every rank. A frozen parameter has no
gradient (None): leave it. The weights stay as they are.

Difficulty: easy, about 10 minutes.

Write the marked lines, then run `check("ex02")` in lesson 02. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex02_average_gradients.py

API: torch.distributed.all_reduce(tensor) adds up over ranks, in place; dist.get_world_size().
"""

import torch
import torch.distributed as dist
from torch import nn

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient of `model` by its mean over all ranks."""
    # TODO: write from here …
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    # … to here (4-6 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(0)
    model = nn.Linear(2, 1).to(place.device)
    x = torch.full((4, 2), dist.get_rank() + 1.0, device=place.device)  # rank r: all r + 1
    model(x).mean().backward()
    before = model.weight.grad.clone()
    average_gradients(model)
    log(before=before, after=model.weight.grad)  # with 3 ranks, after is [[2.0, 2.0]] on each
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
