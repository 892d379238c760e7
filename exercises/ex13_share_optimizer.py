"""Exercise 13: ZeRO by hand: every rank keeps the optimizer's state of its own parameters only.

Target: `train` takes one step for each batch and ends with the weights of one optimizer over all
parameters. Each rank makes an optimizer for a share of the parameters: each parameter belongs to
one rank, and the shares differ by one parameter at most. After a step, the owners send theirs.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex13")` in lesson 13. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex13_share_optimizer.py

API: list(model.parameters())[rank::world_size]; make_optimizer(parameters) gives an AdamW;
dist.broadcast(parameter.data, src=owner).
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def train(
    model: DDP,
    make_optimizer: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
    batches: Batches,
) -> None:
    """One step for each batch, with the optimizer's state shared out among the ranks."""
    # TODO: write from here …
    raise NotImplementedError("train is yours to write")
    # … to here (8-10 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    x = torch.randn(20, 4, 8).to(place.device)  # 20 batches of 4 samples
    y = x.sum(2, keepdim=True)
    train(model, lambda some: torch.optim.AdamW(some, lr=0.01), list(zip(x, y, strict=True)))
    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # the same on every rank
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
