"""How a rank calls the function of ex13."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.agreed import LEARNING_RATE, SAVED_BALLAST
from ddp_course.checks.calling import Function, Tensors, as_array


class Blocks(nn.Module):
    """One weight vector for each block of features, and further parameters that only travel."""

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.blocks = nn.ParameterList(nn.Parameter(one.clone()) for one in weights)
        self.ballast = nn.Parameter(torch.zeros(SAVED_BALLAST))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[:, k] @ weight for k, weight in enumerate(self.blocks)]
        return torch.stack(parts).sum(0) + 0 * self.ballast.sum()


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    module = Blocks(torch.tensor(inputs["weights"])).to(device)
    model = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    numbers = {parameter: number for number, parameter in enumerate(model.parameters())}
    held: list[int] = []

    def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        some = list(parameters)
        held.extend(numbers.get(one, -1) for one in some)
        return torch.optim.AdamW(some, lr=LEARNING_RATE)

    x, y = (torch.tensor(inputs[name], device=device) for name in ("x", "y"))
    function(model, make_optimizer, list(zip(x, y, strict=True)))
    blocks = list(module.blocks)
    return {
        "weights": as_array(torch.stack(blocks)),
        "held": np.array([held.count(number) for number in range(len(numbers))]),
    }
