"""Exercise 03c: find the hang.

`train` takes a step for each batch. It works, until on some rank a batch is empty: then the job
hangs. Remove the first marked line, run the check, and see what each rank did. Then fix it.

Target: all ranks finish, whichever batches are empty. A rank without samples takes part in the step
with a loss and a gradient of zero; the loss of every other batch is the mean squared error over its
samples, and each step is DDP's average over all ranks, as before.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex03c")` in lesson 03. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 exercises/ex03c_find_hang.py

API: DDP averages the gradients in backward(); errors.sum() is 0 if there are none, and has a graph.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def train(model: DDP, optimizer: torch.optim.Optimizer, batches: Batches) -> float:
    """Take one step for each batch (x, y), x of shape (samples, features) and y (samples, 1).

    Returns the sum of this rank's losses.
    """
    # TODO: write from here …
    total = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        errors = (model(x) - y) ** 2
        loss = errors.sum() / max(1, len(x))
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
    # … to here (8-10 lines, two of them changed)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    model = nn.Linear(1, 1, bias=False).to(place.device)
    nn.init.zeros_(model.weight)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = [2, 2, 2, 0 if dist.get_rank() == 1 else 2]  # rank 1 runs out of data
    batches = [
        (torch.ones(n, 1, device=place.device), torch.ones(n, 1, device=place.device))
        for n in sizes
    ]
    loss = train(model, optimizer, batches)
    log(loss=loss, weight=model.module.weight)  # with 3 ranks, weight is [[0.5563]] on each
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
