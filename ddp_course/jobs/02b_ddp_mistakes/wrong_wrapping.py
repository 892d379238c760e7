"""Three ways to step around DDP, each caught by one number.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_wrapping.py --mistake module

    none       the right way, to compare with
    module     forward through `model.module`: DDP never learns that a backward is coming
    unfrozen   a layer unfrozen after wrapping: DDP lists what is trainable when it wraps
    replaced   a layer replaced after wrapping: DDP still waits for the old layer's gradients

Look for: `spread`, the largest difference between two ranks in one parameter. Anything but 0 means
that the ranks now train different models. The first two say nothing, ever; `replaced` ends in an
error, one step after the damage.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import digest, log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--mistake", choices=["none", "module", "replaced", "unfrozen"], default="none")
parser.add_argument("--steps", type=int, default=5, help="training steps")


def spread(model: nn.Module) -> float:
    """The largest difference between two ranks in one parameter: max over ranks minus min."""
    highest = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    lowest = highest.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return (highest - lowest).max().item()


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    body, head = nn.Linear(64, 16), nn.Linear(16, 10)
    if args.mistake == "unfrozen":
        body.requires_grad_(False)
    model = DDP(nn.Sequential(body, nn.ReLU(), head).to(place.device), device_ids=place.device_ids)

    forward = model
    if args.mistake == "module":
        forward = model.module
    if args.mistake == "replaced":
        model.module[2] = nn.Linear(16, 10, device=place.device)
    if args.mistake == "unfrozen":
        body.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    torch.manual_seed(1 + dist.get_rank())  # every rank has data of its own
    for step in range(args.steps):
        x = torch.randn(12, 64, device=place.device)
        y = torch.randint(10, (12,), device=place.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item(), spread=spread(model))
        dist.barrier()  # every rank has told its step before one can fail in the next

    digest(model)  # diagnose(run) compares the replicas
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
