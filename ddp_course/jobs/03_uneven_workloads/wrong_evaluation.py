"""Rank 0 evaluates through the DDP model, alone: the forward of a model with buffers communicates.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/03_uneven_workloads/wrong_evaluation.py --timeout-s 5

The first forward after a training step copies rank 0's buffers (BatchNorm's running means) to all
ranks: a broadcast, in eval mode and under no_grad as well. `--through module` evaluates the model
inside, which never communicates. `--norm layer` has no buffers, so the mistake stays hidden.

Look for: `doing`, the last thing that each rank began; `valid_loss` where rank 0 got that far.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--through", choices=["ddp", "module"], default="ddp")
parser.add_argument("--norm", choices=["batch", "layer"], default="batch")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    x, y = torch.randn(96, 64, device=place.device), torch.randn(96, 1, device=place.device)
    norm = nn.BatchNorm1d(16) if args.norm == "batch" else nn.LayerNorm(16)
    model = nn.Sequential(nn.Linear(64, 16), norm, nn.ReLU(), nn.Linear(16, 1)).to(place.device)
    log(buffers=len(list(model.buffers())))
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for step in range(3):
        log(step=step, doing=f"training step {step}")
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rank:48:world_size]), y[rank:48:world_size])
        loss.backward()
        optimizer.step()

    if rank == 0:
        log(doing="forward for the evaluation")
        evaluated = model if args.through == "ddp" else model.module
        evaluated.eval()
        with torch.no_grad():
            valid_loss = nn.functional.mse_loss(evaluated(x[48:]), y[48:])
        log(valid_loss=valid_loss.item())

    log(doing="barrier at the end")
    dist.barrier()
    log(doing="done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
