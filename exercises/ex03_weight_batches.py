"""Exercise 03: weight uneven batches, so that every sample counts the same.

Target: every rank calls `weighted_loss(losses)` with the losses of its own samples, one number for
each sample. The ranks have unequal numbers of samples, and one may have none. It returns the loss
to call backward() on. DDP then averages gradients over ranks, and what comes out must be the
gradient of the mean loss over all samples of all ranks.

Difficulty: medium, about 10 minutes.

Write the marked lines, then run `check("ex03")` in lesson 03. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex03_weight_batches.py

API: torch.distributed.all_reduce(tensor) adds up over ranks, in place; dist.get_world_size().
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def weighted_loss(losses: torch.Tensor) -> torch.Tensor:
    """Return the loss whose gradient, averaged over ranks by DDP, is that of the global mean."""
    # TODO: write from here …
    raise NotImplementedError("weighted_loss is yours to write")
    # … to here (3-4 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank = dist.get_rank()
    model = DDP(nn.Linear(1, 1, bias=False).to(place.device), device_ids=place.device_ids)
    x = torch.full((rank + 1, 1), 10.0**rank, device=place.device)  # 1 | 10, 10 | 100, 100, 100
    losses = model(x)[:, 0]  # shape (rank + 1,); the gradient of each is its x
    weighted_loss(losses).backward()
    log(samples=len(x), gradient=model.module.weight.grad)  # 3 ranks: 321 / 6 = 53.5 on each
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
