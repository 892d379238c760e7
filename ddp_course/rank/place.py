"""The one place that chooses a rank's device and backend.

The rule: NCCL when every rank on this machine can have a GPU of its own, Gloo on the CPU otherwise.
Two ranks on one GPU deadlock or fail under NCCL, so more ranks than GPUs means the CPU, and the
reason is part of the answer. `device_ids`, `set_device` and `device_id` all follow from here.

On a machine without GPUs the GPU branch is tested with a pretended device count only; it has not
been verified on several real GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ddp_course.rank.report import emit

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Choice:
    """Device and backend by name, and why: what `choose` decides without touching a device."""

    device: str  # "cpu" or "cuda:<local rank>"
    backend: str  # "gloo" or "nccl"
    why: str


@dataclass(frozen=True)
class Place:
    """Where this rank computes, in the terms that torch asks for.

    device      torch.device, for `.to(place.device)`
    backend     for `init_process_group(place.backend, …)`
    device_id   for `init_process_group(…, device_id=…)`: None on the CPU
    device_ids  for `DDP(model, device_ids=…)`: None on the CPU, [local_rank] on a GPU
    timeout     for `init_process_group(…, timeout=…)`: below the launch's own limit
    why         one sentence, shown with every run
    """

    device: torch.device
    backend: str
    device_id: torch.device | None
    device_ids: list[int] | None
    timeout: timedelta
    why: str


def choose(*, local_rank: int, local_world_size: int, gpus: int) -> Choice:
    """Choose device and backend from three numbers; pure, so that it can be tested anywhere."""
    if gpus >= local_world_size:
        return Choice(
            f"cuda:{local_rank}", "nccl", f"NCCL: {gpus} GPU(s) here, one for each local rank"
        )
    if gpus:
        why = (
            f"Gloo on the CPU: {local_world_size} ranks but {gpus} GPU(s) here, and two ranks "
            "cannot share one GPU under NCCL"
        )
        return Choice("cpu", "gloo", why)
    return Choice("cpu", "gloo", "Gloo on the CPU: no GPU here")


def my_place() -> Place:
    """Choose for the rank that calls it, and make its GPU the current one if it has one.

    Reads LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun sets (torch/distributed/run.py). Without
    them the answer is that of a single process. Where `launch(…, nodes=2)` pretends that this
    machine is several, the nodes share its GPUs, the first ones going to node 0.
    """
    import torch

    nodes_here = int(os.environ.get("DDP_COURSE_NODES_HERE", "1"))
    ranks_each = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if nodes_here > 1:
        local_rank += ranks_each * int(os.environ.get("GROUP_RANK", "0"))
    choice = choose(
        local_rank=local_rank,
        local_world_size=ranks_each * nodes_here,
        gpus=torch.cuda.device_count(),
    )
    device = torch.device(choice.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    on_gpu = device.type == "cuda"
    emit("place", device=choice.device, backend=choice.backend, why=choice.why)
    return Place(
        device=device,
        backend=choice.backend,
        device_id=device if on_gpu else None,
        device_ids=[local_rank] if on_gpu else None,
        timeout=time_limit(),
        why=choice.why,
    )


def time_limit(environ: Mapping[str, str] = os.environ) -> timedelta:
    """How long a collective may wait for the other ranks.

    The launcher sets DDP_COURSE_TIMEOUT_S below its own limit. In a plain shell the answer is one
    minute: torch's own default is 30 (torch/distributed/constants.py), a long time to watch a hang.
    """
    return timedelta(seconds=float(environ.get("DDP_COURSE_TIMEOUT_S", "60")))
