"""Exercise 05: hand over: one model on two ranks, the first half on rank 0, the second on rank 1.

Target: `train_step(stage, data)` runs one micro-batch through both halves and back. Rank 0 gets the
inputs as `data`, rank 1 the targets. Afterwards each rank's parameters have the gradients that one
process with the whole model would compute, added to those that were there: a step may have several
micro-batches. Nothing is averaged: the ranks hold different layers, not replicas.

Difficulty: hard, about 20 minutes.

Write the marked lines, then run `check("ex05")` in lesson 05. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=2 exercises/ex05_hand_over.py

API: dist.send(tensor, dst=rank) and dist.recv(tensor, src=rank), which fills a tensor that is there
already: torch.empty_like(tensor); tensor.detach(); tensor.requires_grad_();
hidden.backward(gradient) with the derivative of the loss for each element of hidden; the .grad of
a tensor after backward.
"""

import torch
import torch.distributed as dist
from torch import nn

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

WIDTH = 3


def train_step(stage: nn.Module, data: torch.Tensor) -> None:
    """One micro-batch, forward and backward; the loss is nn.functional.mse_loss(output, data).

    data      (samples, WIDTH): the inputs on rank 0, the targets on rank 1
    The output of rank 0's stage has the same shape.
    """
    # TODO: write from here …
    raise NotImplementedError("train_step is yours to write")
    # … to here (8-12 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    stage = nn.Linear(WIDTH, WIDTH, bias=False, device=place.device)
    nn.init.constant_(stage.weight, dist.get_rank() + 1.0)  # rank 0: all 1, rank 1: all 2
    data = torch.ones(2, WIDTH, device=place.device)
    train_step(stage, data)
    log(gradient=stage.weight.grad[0, 0])  # 68.0 on rank 0, 34.0 on rank 1
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
