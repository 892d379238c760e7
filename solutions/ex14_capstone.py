"""Exercise 14: train, survive, resume with more ranks, save bytes, and count once.

Target: `train` takes one step for each batch of `steps` that has not had its step yet, and returns
how many of the test samples are classified right, and how many there are: two whole numbers, the
same on every rank. When a rank is killed, all are started again, perhaps more than before, and
`train` is called anew with a fresh model and the same `path`.

- The samples of a batch are shared out among the ranks that are there; each is used once.
- After every step rank 0, and no other, saves what is needed to go on; `path` is a whole file, or
  absent, at any moment.
- The gradients travel in half the bytes: as bfloat16 or float16.
- Every test sample counts once, whatever their number.

Difficulty: hard, about 30 minutes.

Write the marked lines, then run `check("ex14")` in lesson 14. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 exercises/ex14_capstone.py

API: model.register_comm_hook(None, bf16_compress_hook); torch.save, torch.load, os.replace;
dist.get_rank(), dist.get_world_size(), dist.all_reduce(tensor); sequence[rank::world_size].
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

Samples = tuple[torch.Tensor, torch.Tensor]  # x of shape (N, features), y of shape (N,)


def take_step(
    model: DDP, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> None:
    """One step of training; nothing to change here."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def train(
    model: DDP,
    optimizer: torch.optim.Optimizer,
    data: Samples,
    steps: list[torch.Tensor],  # for each step the indices of its batch, the same on every rank
    test: Samples,
    path: Path,
) -> tuple[int, int]:
    """Train on what is left of `steps`; return (right, total) over the whole test set."""
    # TODO: write from here …
    rank, world_size, done = dist.get_rank(), dist.get_world_size(), 0
    model.register_comm_hook(None, bf16_compress_hook)
    if path.exists():
        saved = torch.load(path)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    for step in range(done, len(steps)):
        mine = steps[step][rank::world_size]
        take_step(model, optimizer, data[0][mine], data[1][mine])
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**states, "done": step + 1}, path.with_suffix(".draft"))
            os.replace(path.with_suffix(".draft"), path)
    x, y = test[0][rank::world_size], test[1][rank::world_size]
    with torch.no_grad():
        counts = torch.stack([(model.module(x).argmax(1) == y).sum(), torch.tensor(len(y)).to(y)])
    dist.all_reduce(counts)
    return int(counts[0]), int(counts[1])
    # … to here (16-20 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 4).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(491, 8).to(place.device)
    y = x[:, :4].argmax(1)  # (491,): which of the first four features is the largest
    data, test = (x[:480], y[:480]), (x[480:], y[480:])  # 11 test samples
    steps = list(torch.arange(480).to(place.device).split(24))
    path = my_folder() / "checkpoint.pt"
    right, total = train(model, optimizer, data, steps, test, path)
    log(right=right, total=total, saved=path.exists())  # of 11
    dist.barrier()
    if dist.get_rank() == 0:
        path.unlink(missing_ok=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
