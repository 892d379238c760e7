"""How a rank calls the function of ex03."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.calling import Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    models: dict[str, DDP] = {}
    losses: dict[str, torch.Tensor] = {}
    for case in ("uneven", "empty"):
        bare = nn.Linear(4, 1, bias=False, device=device)
        bare.weight.data = torch.tensor(inputs["weight"], device=device)[None]
        models[case] = DDP(bare)  # kept until after backward: without it nothing is averaged
        x, y = (torch.tensor(inputs[f"{case}/{name}"], device=device) for name in ("x", "y"))
        losses[case] = (models[case](x)[:, 0] - y) ** 2 / 2
    results = {case: function(losses[case]) for case in losses}
    outputs: Tensors = {}
    for case, loss in results.items():
        if isinstance(loss, torch.Tensor):
            torch.autograd.backward(loss)
            (weight,) = models[case].parameters()
            if weight.grad is not None:
                outputs[f"{case}/gradient"] = as_array(weight.grad[0])
            outputs[f"{case}/finite"] = as_array(torch.isfinite(loss).all().long())
    values = [function(torch.ones(count, device=device)) for count in inputs["rounds/count"]]
    numbers = [value for value in values if isinstance(value, torch.Tensor) and value.numel() == 1]
    if len(numbers) == len(values):  # of any shape: backward() takes (1,) as well
        outputs["rounds/loss"] = as_array(torch.stack([one.reshape(()) for one in numbers]))
    return outputs
