"""How a rank calls the function of ex02."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ddp_course.checks.calling import Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    wide = nn.Linear(128, 128, bias=False)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), wide).to(device)
    for name, parameter in model.named_parameters():
        parameter.data = torch.tensor(inputs[f"weight/{name}"], device=device)
        if f"grad/{name}" in inputs:
            parameter.grad = torch.tensor(inputs[f"grad/{name}"], device=device)
        else:
            parameter.requires_grad_(False)
    function(model)
    outputs = {f"weight/{name}": as_array(one) for name, one in model.named_parameters()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            outputs[f"grad/{name}"] = as_array(parameter.grad)
    given = {name for name in outputs if name.startswith("grad/")} <= inputs.keys()
    outputs["frozen/without gradient"] = np.array(int(given))
    return outputs
