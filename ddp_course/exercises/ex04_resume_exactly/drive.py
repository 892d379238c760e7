"""How a rank calls the function of ex04."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.agreed import LEARNING_RATE, MOMENTUM, SAVED_BALLAST
from ddp_course.checks.calling import Broad, Function, Tensors, as_array, attempt
from ddp_course.rank.report import my_folder


def _kill_rank_1() -> None:
    dist.barrier()  # rank 0 has saved
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    """Call it three times. In the first, rank 1 is killed at the beginning of a step, and torchrun
    starts anew; the second goes on; at the third all steps are done."""
    path, first = my_folder() / "checkpoint.pt", int(inputs["first"])
    models = []
    for name in ("weight", "fresh_weight", "fresh_weight"):  # before any call: DDP communicates
        layer = Broad(inputs[name].shape[1], 1, bias=False, ballast=SAVED_BALLAST).to(device)
        layer.weight.data = torch.tensor(inputs[name], device=device)
        models.append(DDP(layer, device_ids=[device.index] if device.type == "cuda" else None))
    batches = [
        (torch.tensor(x, device=device), torch.tensor(y, device=device))
        for x, y in zip(inputs["x"], inputs["y"], strict=True)
    ]
    drawn: list[float] = []

    def call(model: DDP, seed: str) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        torch.manual_seed(int(inputs[seed][0]))
        drawn.clear()

        def take_step(batch: Any) -> None:
            if model is models[0] and len(drawn) == first:
                _kill_rank_1()
            x, y = batch
            drawn.append(torch.rand(1).item())
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.mse_loss(model(x)[:, 0], y))
            optimizer.step()

        function(take_step, batches, model, optimizer, path)
        return optimizer

    if attempt() == 0:
        call(models[0], "seed")
        _kill_rank_1()  # who takes fewer steps is killed after them
    outputs = {"saved": np.array(int(path.exists()))}
    optimizer = call(models[1], "fresh_seed")
    outputs["steps"] = np.array(len(drawn))
    outputs["draws"] = np.array(drawn, dtype=np.float32)
    outputs["next"] = outputs["draws"][:1]
    outputs["weight"] = as_array(models[1].module.weight)
    if momentum := optimizer.state.get(models[1].module.weight):
        outputs["momentum"] = as_array(momentum["momentum_buffer"])
    call(models[2], "fresh_seed")
    outputs["further"] = np.array(len(drawn))
    return outputs
