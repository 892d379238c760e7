"""What the exercises share where a rank calls the learner's function."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddp_course.checks.agreed import BALLAST
from ddp_course.checks.evidence import Array

Function = Callable[..., Any]
Tensors = dict[str, Array]


def attempt() -> int:
    """How often torchrun has started the ranks again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class Broad(nn.Linear):
    """A linear layer with further parameters, which change nothing but are averaged as well."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, ballast: int = BALLAST
    ) -> None:
        super().__init__(inputs, outputs, bias)
        self.ballast = nn.Parameter(torch.zeros(ballast))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 0 * self.ballast.sum()


def as_array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array
