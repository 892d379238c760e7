"""Exercise 06: a training loop that survives being killed.

Target: when a rank is killed, torchrun starts all of them again (`--max-restarts`), and `train` is
called anew: a fresh model, a fresh optimizer, the same batches, the same `path`. It continues
after the last finished step, and ends with the weights of an undisturbed run.

- After every step rank 0, and no other, saves what is needed to go on, with torch.save.
- A kill may come in the middle of a save: at any moment `path` is a whole file, or absent.

Difficulty: hard, about 25 minutes.

Write the marked lines, then run `check("ex06")` in lesson 06. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex06_survive_kill.py

API: torch.save(dict, file), torch.load(file), model and optimizer .state_dict() and
.load_state_dict(…); os.replace(draft, path) puts a file in another's place, all at once.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def take_step(
    model: DDP, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> None:
    """One step of training; nothing to change here."""
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def train(model: DDP, optimizer: torch.optim.Optimizer, batches: Batches, path: Path) -> None:
    """Take one step for each batch that has not had its step yet."""
    # TODO: write from here …
    raise NotImplementedError("train is yours to write")
    # … to here (8-12 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(0)
    model = DDP(nn.Linear(3, 1).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(20, 4, 3).to(place.device)  # 20 batches of 4 samples
    y = x.sum(2, keepdim=True)  # (20, 4, 1): what the three weights must learn
    path = my_folder() / "checkpoint.pt"
    train(model, optimizer, list(zip(x, y, strict=True)), path)
    log(weight=model.module.weight, saved=os.path.exists(path))  # near [[1, 1, 1]], True
    dist.barrier()
    if dist.get_rank() == 0:
        path.unlink(missing_ok=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
