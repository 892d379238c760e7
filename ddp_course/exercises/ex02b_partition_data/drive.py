"""How a rank calls the function of ex02b."""

from __future__ import annotations

import operator
import random
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ddp_course.checks.calling import Function, Tensors
from ddp_course.checks.evidence import Array


def _whole(indices: Any) -> Array | None:
    """Whole numbers in a row, if that is what it is."""
    if not isinstance(indices, list | tuple | range | torch.Tensor | np.ndarray):
        return None
    try:
        array = np.array([operator.index(one) for one in indices], np.int64)
    except (TypeError, OverflowError, RuntimeError):
        return None
    return array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(int(inputs["seed"]))
    random.seed(int(inputs["seed"]))
    np.random.seed(int(inputs["seed"]))
    outputs: Tensors = {}
    for case in ("even", "uneven", "tiny"):
        size = int(inputs[f"{case}/size"])
        shares = [_whole(function(size, int(epoch), rank, ranks)) for epoch in inputs["epochs"]]
        kept = [share for share in shares if share is not None]
        if len(kept) == len(shares):
            outputs[f"{case}/counts"] = np.array([len(share) for share in kept], np.int64)
            outputs[f"{case}/indices"] = np.concatenate(kept)
    return outputs
