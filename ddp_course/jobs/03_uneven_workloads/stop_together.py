"""Early stopping: a decision that each rank takes alone ends in a hang; one taken by all does not.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/03_uneven_workloads/stop_together.py --decide alone --timeout-s 5

Training stops as soon as the validation loss rises. Each rank has its share of the validation data.

    alone   each rank looks at its own share, and leaves: the others wait for it in vain
    any     all stop as soon as one wants to: all_reduce of a flag, MAX
    mean    the shares' losses are added up first: all decide by the same number

Look for: `stopped_at`, the number of steps taken: whether it is the same on all ranks, and whether
it is that of one process with all the data (--nproc-per-node=1).
"""

import argparse
import math
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--decide", choices=["alone", "any", "mean"], default="alone")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")
parser.add_argument("--steps", type=int, default=100, help="at most")
parser.add_argument("--seed", type=int, default=0, help="for the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    inputs, rule = torch.randn(144, 32), torch.randn(32, 1)
    targets = inputs @ rule + 4 * torch.randn(144, 1)  # mostly noise, so it overfits
    train_x, train_y = (t[:48][rank::world_size].to(place.device) for t in (inputs, targets))
    valid_x, valid_y = (t[48:][rank::world_size].to(place.device) for t in (inputs, targets))

    model = DDP(nn.Linear(32, 1).to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    best = math.inf
    for step in range(args.steps):
        optimizer.zero_grad()
        log(step=step, doing=f"all_reduce of step {step}")
        loss = nn.functional.mse_loss(model(train_x), train_y)
        loss.backward()
        optimizer.step()

        with torch.no_grad():
            valid_loss = nn.functional.mse_loss(model.module(valid_x), valid_y)
        if args.decide == "mean":
            dist.all_reduce(valid_loss)  # the shares are equal, so the mean of their means is right
            valid_loss /= world_size
        stop = (valid_loss > best).float()
        best = min(best, valid_loss.item())
        if args.decide == "any":
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        log(loss=loss.item(), valid_loss=valid_loss.item())
        if stop:
            break

    log(stopped_at=step + 1, doing="barrier at the end")
    dist.barrier()
    log(doing="done", weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (33,)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
