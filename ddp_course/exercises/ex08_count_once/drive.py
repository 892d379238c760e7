"""How a rank calls the function of ex08: once for each of many small test sets."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from ddp_course.checks.calling import Function, Tensors


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    labels, guesses = (torch.tensor(inputs[name], device=device) for name in ("labels", "guesses"))
    sets, total = labels.shape
    mine = torch.arange(rank, -(-total // world_size) * world_size, world_size) % total
    told = [
        function(guesses[one, mine], labels[one, mine], total, int(inputs["classes"]))
        for one in range(sets)
    ]
    try:
        numbers = np.array([[float(value) for value in pair] for pair in told])
        accuracy, macro_f1 = numbers.reshape(sets, 2).T
    except (TypeError, ValueError, RuntimeError):
        return {}
    return {"accuracy": accuracy, "macro_f1": macro_f1}
