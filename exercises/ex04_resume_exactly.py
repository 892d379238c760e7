"""Exercise 04: make a training resumable, so exactly that the interruption leaves no trace.

Target: `train` takes one step for each batch, and saves after each step. If there is a checkpoint,
it continues from there: the weights, the optimizer, the random state of *this* rank, and the
batches that are left. It is called again as in a fresh process: fresh model, fresh optimizer, a new
random state, the same batches.

Difficulty: hard, about 25 minutes.

Write the marked lines, then run `check("ex04")` in lesson 04. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex04_resume_exactly.py

API: part.state_dict(), part.load_state_dict(state); model.module is the model inside DDP;
torch.set_rng_state(state); dist.get_rank(); and the three functions below.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Call it on all ranks: rank 0 writes, and nobody goes on before the file is whole."""
    if dist.get_rank() == 0:
        torch.save(checkpoint, path.with_suffix(".draft"))
        os.replace(path.with_suffix(".draft"), path)
    dist.barrier()


def load(path: Path) -> dict[str, Any]:
    """The last checkpoint; {} if there is none."""
    return torch.load(path, map_location="cpu") if path.exists() else {}


def random_states() -> list[torch.Tensor]:
    """The random state of every rank, in the order of ranks. Call it on all ranks."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, torch.get_rng_state())
    return states


def train(
    take_step: Callable[[Any], None],  # take_step(batch): forward, backward, optimizer.step()
    batches: list[Any],
    model: DDP,
    optimizer: torch.optim.Optimizer,
    path: Path,
) -> None:
    """Take one step for each batch and save after each; go on from a checkpoint, if any."""
    # TODO: write from here …
    raise NotImplementedError("train is yours to write")
    # … to here (8-10 lines)


def one_process_lifetime(seed: int, batches: list[torch.Tensor], path: Path) -> list[float]:
    """Train with a fresh model; returns the random number that each step drew."""
    place = my_place()
    torch.manual_seed(seed)
    model = DDP(nn.Linear(2, 1).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(10 * seed + dist.get_rank())
    drawn = []

    def take_step(x: torch.Tensor) -> None:
        drawn.append(torch.rand(1).item())  # as dropout would
        optimizer.zero_grad()
        model(x.to(place.device)).square().mean().backward()
        optimizer.step()

    train(take_step, batches, model, optimizer, path)
    log(weights=model.module.weight)
    return drawn


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    batches = [torch.full((4, 2), dist.get_rank() + 1.0) for _ in range(6)]
    if dist.get_rank() == 0:
        for name in ("killed.pt", "whole.pt"):
            (my_folder() / name).unlink(missing_ok=True)  # what an earlier run may have left
    dist.barrier()
    whole = one_process_lifetime(1, batches, my_folder() / "whole.pt")
    one_process_lifetime(1, batches[:2], my_folder() / "killed.pt")
    rest = one_process_lifetime(2, batches, my_folder() / "killed.pt")
    log(resumed_drew=rest, should_be=whole[2:])  # equal; and the first and last weights, too
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
