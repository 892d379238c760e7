"""How a rank calls the function of ex02d; what it sends is counted, whichever way it sends."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ddp_course.checks.calling import Function, Tensors, as_array


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    sent: list[int] = []

    def counting(real: Any) -> Any:
        def send(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
            sent.append(tensor.numel())
            return real(tensor, *args, **named)

        return send

    for name in ("send", "isend"):
        counted = counting(getattr(dist, name))
        setattr(dist, name, counted)
        setattr(c10d, name, counted)  # for batch_isend_irecv
    outputs: Tensors = {}
    for name in ("few", "bulk"):
        sent.clear()
        pieces = list(torch.tensor(inputs[f"pieces/{name}"], device=device))
        result = function(pieces)
        if isinstance(result, list | tuple) and all(isinstance(r, torch.Tensor) for r in result):
            result = torch.stack(list(result))
        if isinstance(result, torch.Tensor):
            outputs[f"{name}/result"] = as_array(result)
        outputs[f"{name}/sent"] = as_array(torch.tensor(sum(sent)))
    return outputs
