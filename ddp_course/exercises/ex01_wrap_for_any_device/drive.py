"""How a rank calls the function of ex01."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.checks.agreed import CPU
from ddp_course.exercises.calling import Broad, Function, Tensors, as_array


class Pretended(nn.Module):
    """A model that writes down where it is sent, and goes nowhere."""

    where, current = CPU, 0  # CPU or a GPU's number; the GPU that `cuda` without a number means

    def to(self, device: Any = None, **named: Any) -> Pretended:  # type: ignore[override]
        self.where = _number(device if device is not None else named["device"], self.current)
        return self

    def cuda(self, device: Any = None) -> Pretended:
        return self.to("cuda" if device is None else device)

    def cpu(self) -> Pretended:
        return self.to("cpu")


class PretendedDDP(nn.Module):
    """What the learner's function asks DDP for, on a machine that is not there."""

    def __init__(self, module: Pretended, device_ids: Any = None, **_: Any) -> None:
        super().__init__()
        ids = [CPU] if device_ids is None else [_number(one, 0) for one in device_ids]
        self.asked = {"device": np.array([module.where]), "device_ids": np.array(ids, np.int64)}


class PretendedDataParallel(nn.Module):
    """nn.DataParallel on a machine that is not there: whatever it does, it is no DDP."""

    def __init__(self, module: Pretended, *_: Any, **__: Any) -> None:
        super().__init__()


def _number(device: Any, current: int) -> int:
    """A GPU's number, or CPU."""
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type == "cpu":
        return CPU
    return current if named.index is None else named.index


def _pretend(function: Function, local_rank: int, local_world_size: int, gpus: int) -> Tensors:
    """What `wrap` asks for on a machine with that many GPUs."""
    model = Pretended()
    theirs = vars(sys.modules[function.__module__])
    stand_ins: dict[Any, Any] = {DDP: PretendedDDP, nn.DataParallel: PretendedDataParallel}
    named = {
        name: stand_in
        for name, value in theirs.items()
        for real, stand_in in stand_ins.items()
        if value is real
    }

    def set_device(device: Any) -> None:
        model.current = _number(device, model.current)

    @contextlib.contextmanager
    def use_device(device: Any) -> Iterator[None]:
        before = model.current
        set_device(device)
        yield
        model.current = before

    with (
        patch.dict(theirs, named),
        patch.object(nn.parallel, "DistributedDataParallel", PretendedDDP),
        patch.object(nn.parallel, "DataParallel", PretendedDataParallel),
        patch.object(nn, "DataParallel", PretendedDataParallel),
        patch.object(torch.cuda, "is_available", lambda: gpus > 0),
        patch.object(torch.cuda, "device_count", lambda: gpus),
        patch.object(torch.cuda, "current_device", lambda: model.current),
        patch.object(torch.cuda, "set_device", set_device),
        patch.object(torch.cuda, "device", use_device),
    ):
        wrapped = function(model, local_rank, local_world_size, gpus)
    return wrapped.asked if isinstance(wrapped, PretendedDDP) else {}


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
    for case in ("gpus", "enough", "few"):
        names = ("local_rank", "local_world_size", "gpus")
        asked = _pretend(function, *(int(inputs[f"{case}/{name}"][0]) for name in names))
        outputs |= {f"{case}/{name}": value for name, value in asked.items()}
    return outputs
