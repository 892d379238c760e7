"""Are the ranks' models really equal? Measured before DDP, after it, and after every step.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02_basic_ddp/compare_replicas.py

Look for: `spread`, the largest difference between any two ranks in any parameter. It is large
while the ranks have only their different seeds, and exactly 0 from the DDP constructor on.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5, help="training steps")
parser.add_argument("--seed", type=int, default=0, help="rank r uses seed + r")


def spread(model: nn.Module) -> float:
    """The largest difference between two ranks in one parameter: max over ranks minus min."""
    highest = nn.utils.parameters_to_vector(model.parameters()).detach().clone()  # (1210,)
    lowest = highest.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return (highest - lowest).max().item()


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank = dist.get_rank()

    torch.manual_seed(args.seed + rank)  # on purpose: every rank draws other weights and other data
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(place.device)
    log(when="before DDP", spread=spread(model))

    model = DDP(model, device_ids=place.device_ids)  # broadcasts rank 0's parameters
    log(when="after DDP(model)", spread=spread(model))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        x = torch.randn(12, 1, 8, 8, device=place.device)
        y = torch.randint(10, (12,), device=place.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # gradients are averaged here, so every rank takes the same step
        optimizer.step()
        log(step=step, loss=loss.item(), when=f"after step {step}", spread=spread(model))

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
