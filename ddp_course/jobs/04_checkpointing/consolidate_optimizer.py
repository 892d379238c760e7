"""The optimizer's state in pieces: ZeroRedundancyOptimizer must collect it before rank 0 can save.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/consolidate_optimizer.py

Each rank keeps AdamW's state for some of the parameters only (whole tensors, so the pieces are
unequal). Look for: `held`, how many numbers of it this rank holds; `early`, what state_dict() says
before `consolidate_state_dict`; and `collected`, how many numbers rank 0 has after it: all of them.
The call is a collective: every rank must make it, although only rank 0 gets the result.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def count(states: dict) -> int:
    """How many numbers an optimizer's states hold."""
    return sum(value.numel() for state in states.values() for value in state.values())


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    model(torch.randn(12, 64, device=place.device)).square().mean().backward()
    optimizer.step()
    log(held=count(optimizer.optim.state))

    try:
        optimizer.state_dict()
        early = "no error"
    except RuntimeError as error:
        early = str(error).split(". ")[0]
    optimizer.consolidate_state_dict(to=0)  # a collective
    collected = count(optimizer.state_dict()["state"]) if dist.get_rank() == 0 else 0
    log(early=early, collected=collected)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
