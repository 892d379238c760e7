"""How a rank calls the function of ex01: on this machine, and on three that are not there.

A pretended machine has DDP itself and real models, so what a learner does with them works, and
nothing tells them apart from here but the devices that are asked for. They are written down instead
of used, and DDP keeps to this process: no rank waits for another.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.agreed import CPU
from ddp_course.checks.calling import Broad, Function, Tensors, as_array


def _number(device: Any, current: int) -> int:
    """A GPU's number, or CPU."""
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type == "cpu":
        return CPU
    return current if named.index is None else named.index


class Machine:
    """A machine with so many GPUs, for the time of a `with`."""

    def __init__(self, gpus: int, alone: Any) -> None:
        self._gpus, self._alone = gpus, alone
        self._current = 0  # the GPU that `cuda` without a number means
        self._where: dict[nn.Module, int] = {}
        self._asked: list[tuple[nn.Module, int, list[int]]] = []

    def asked(self, wrapped: Any) -> Tensors:
        """What was asked for the model that came back; nothing if it is not in DDP."""
        for ddp, where, ids in self._asked:
            if ddp is wrapped:
                return {"device": np.array([where]), "device_ids": np.array(ids, np.int64)}
        return {}

    @contextlib.contextmanager
    def pretended(self) -> Iterator[None]:
        machine, wrap = self, DDP.__init__

        def to(module: nn.Module, *to: Any, **named: Any) -> nn.Module:
            device = named.get("device", to[0] if to else None)
            if isinstance(device, str | int | torch.device):
                machine._where[module] = _number(device, machine._current)
            return module

        def cuda(module: nn.Module, device: Any = None) -> nn.Module:
            return to(module, "cuda" if device is None else device)

        def init(
            ddp: DDP, module: nn.Module, device_ids: Any = None, _: Any = None, *more: Any,
            **named: Any,
        ) -> None:  # fmt: skip
            ids = [CPU] if device_ids is None else [_number(one, 0) for one in device_ids]
            machine._asked.append((ddp, machine._where.get(module, CPU), ids))
            named |= {"process_group": machine._alone}
            named.pop("output_device", None)
            wrap(ddp, module, None, None, *more, **named)

        def no_ddp(parallel: nn.Module, module: nn.Module, *_: Any, **__: Any) -> None:
            nn.Module.__init__(parallel)

        def set_device(device: Any) -> None:
            machine._current = _number(device, machine._current)

        @contextlib.contextmanager
        def use_device(device: Any) -> Iterator[None]:
            before = machine._current
            set_device(device)
            yield
            machine._current = before

        with contextlib.ExitStack() as stack:
            for place, name, stand_in in (
                (nn.Module, "to", to),
                (nn.Module, "cuda", cuda),
                (nn.Module, "cpu", lambda module: to(module, "cpu")),
                (DDP, "__init__", init),
                (nn.DataParallel, "__init__", no_ddp),
                (torch.cuda, "is_available", lambda: machine._gpus > 0),
                (torch.cuda, "device_count", lambda: machine._gpus),
                (torch.cuda, "current_device", lambda: machine._current),
                (torch.cuda, "set_device", set_device),
                (torch.cuda, "device", use_device),
            ):
                stack.enter_context(patch.object(place, name, stand_in))
            yield


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    outputs: Tensors = {}
    model = Broad(4, 1, bias=False)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    here = (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]), gpus)
    wrapped = function(model, *here)
    if isinstance(wrapped, nn.Module):
        wrapped(torch.tensor(inputs["here/x"], device=device)).mean().backward()
        weight = next(one for one in wrapped.parameters() if one.dim() == 2)
        if weight.grad is not None:
            outputs["here/gradient"] = as_array(weight.grad[0])
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    for case in ("gpus", "enough", "few"):
        names = ("local_rank", "local_world_size", "gpus")
        local_rank, local_world_size, gpus = (int(inputs[f"{case}/{name}"][0]) for name in names)
        machine, model = Machine(gpus, alone), Broad(4, 1, bias=False, ballast=1)
        with machine.pretended():
            wrapped = function(model, local_rank, local_world_size, gpus)
        outputs |= {f"{case}/{name}": value for name, value in machine.asked(wrapped).items()}
    return outputs
