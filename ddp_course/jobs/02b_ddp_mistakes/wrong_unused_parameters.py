"""A layer that the forward does not use: step 0 passes with gradients unsynchronised, step 1 fails.

    TORCH_DISTRIBUTED_DEBUG=INFO python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_unused_parameters.py

Look for: `spread` after step 0 is not 0 and nothing was said. The error comes one step late; with
TORCH_DISTRIBUTED_DEBUG=INFO it names the layer. `--find-unused` is the cure, at the price of a
walk through the graph in every step; leaving the layer out of the model costs nothing.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--find-unused", action="store_true", help="DDP's find_unused_parameters")
parser.add_argument("--steps", type=int, default=3, help="training steps")


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 16)
        self.head = nn.Linear(16, 10)
        self.spare_head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # spare_head gets no gradient: DDP waits for it in vain


def spread(gradient: torch.Tensor) -> float:
    """The largest difference between two ranks in one gradient: max over ranks minus min."""
    highest, lowest = gradient.clone(), gradient.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return (highest - lowest).max().item()


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    model = TwoHeads().to(place.device)
    model = DDP(model, device_ids=place.device_ids, find_unused_parameters=args.find_unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    torch.manual_seed(1 + dist.get_rank())  # every rank has data of its own
    for step in range(args.steps):
        x = torch.randn(12, 64, device=place.device)
        y = torch.randint(10, (12,), device=place.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)  # without the cure, step 1 fails here
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item(), spread=spread(model.module.body.weight.grad))
        dist.barrier()  # every rank has told its step before one can fail in the next

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
