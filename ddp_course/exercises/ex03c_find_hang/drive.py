"""How a rank calls the function of ex03c."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.calling import Broad, Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    models = {}
    for case in ("full", "hole"):  # both before any call: DDP's constructor communicates
        module = Broad(3, 1, bias=False).to(device)
        module.weight.data = torch.tensor(inputs["weight"], device=device)
        models[case] = DDP(module, device_ids=[device.index] if device.type == "cuda" else None)
    outputs: Tensors = {}
    for case, model in models.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = (torch.tensor(inputs[f"{case}/{name}"], device=device) for name in ("x", "y"))
        counts = inputs[f"{case}/count"]
        batches = [(x[i, :count], y[i, :count]) for i, count in enumerate(counts)]
        loss = function(model, optimizer, batches)
        outputs[f"{case}/weight"] = as_array(model.module.weight)
        if isinstance(loss, int | float | np.number | torch.Tensor):
            number = torch.as_tensor(loss, dtype=torch.float64)
            outputs[f"{case}/loss"] = as_array(
                number.reshape(()) if number.numel() == 1 else number
            )
    return outputs
