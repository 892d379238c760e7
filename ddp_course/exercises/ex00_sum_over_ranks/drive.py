"""How a rank calls the function of ex00."""

from __future__ import annotations

import torch

from ddp_course.checks.calling import Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    number = torch.tensor(inputs["number"], device=device)
    result = function(number)
    outputs = {"argument": as_array(number)}
    bulk = function(torch.tensor(inputs["bulk/number"], device=device))
    for name, tensor in {"result": result, "bulk/result": bulk}.items():
        if isinstance(tensor, torch.Tensor):
            outputs[name] = as_array(tensor)
    return outputs
