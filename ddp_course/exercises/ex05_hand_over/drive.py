"""How a rank calls the function of ex05."""

from __future__ import annotations

import torch
from torch import nn

from ddp_course.checks.calling import Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    stage = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).to(device)
    for name, parameter in stage.named_parameters():
        parameter.data = torch.tensor(inputs[f"weight/{name}"], device=device)
    outputs: Tensors = {}
    for when in ("first", "both"):  # two micro-batches of one step
        function(stage, torch.tensor(inputs[f"data/{when}"], device=device))
        for name, parameter in stage.named_parameters():
            if parameter.grad is not None:
                outputs[f"{when}/{name}"] = as_array(parameter.grad).copy()
    stage.zero_grad()
    function(stage, torch.tensor(inputs["data/bulk"], device=device))
    for name, parameter in stage.named_parameters():
        if parameter.grad is not None:
            outputs[f"bulk/{name}"] = as_array(parameter.grad)
    return outputs
