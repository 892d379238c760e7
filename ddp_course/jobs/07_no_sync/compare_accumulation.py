"""One optimizer step of k micro-batches, synchronised in nine ways, each told by four numbers.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/07_no_sync/compare_accumulation.py --variant first

    last, first, every, never            which micro-batches run outside no_sync
    forward_outside, backward_outside    like last, but only half of the work is inside no_sync
    unscaled                             like last, but the loss is not divided by k
    clip_late, clip_early                like last; clipped after the last backward, or after each

Look for: `all_reduces` and `bytes_sent` in the step; `spread`, the largest difference between two
ranks in any weight afterwards; `distance` of the gradient from that of one process which sees the
whole batch at once, relative to that gradient's length. Right is: 1 all-reduce, and 0 and 0.
"""

import argparse
import copy
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

MAX_NORM = 0.05  # small, so that clipping happens

parser = argparse.ArgumentParser()
parser.add_argument("--variant", default="last", choices=["last", "first", "every", "never",
    "forward_outside", "backward_outside", "unscaled", "clip_late", "clip_early"])  # fmt: skip
parser.add_argument("--micro-batches", type=int, default=4, help="k, for each rank")


def count_and_average(sent: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
    sent.append(bucket.buffer().nbytes)  # DDP calls this once for each bucket that it sends
    return allreduce_hook(None, bucket)  # what DDP does without a hook


def spread(model: nn.Module) -> float:
    highest = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    lowest = highest.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    return (highest - lowest).max().item()  # the largest difference in one parameter


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size, k = dist.get_rank(), dist.get_world_size(), args.micro_batches

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double().to(place.device)
    x = torch.randn(6 * k * world_size, 20, dtype=torch.float64).to(place.device)
    y = torch.randn(6 * k * world_size, 4, dtype=torch.float64).to(place.device)

    oracle = copy.deepcopy(model)  # one process, the whole batch
    nn.functional.mse_loss(oracle(x), y).backward()
    if args.variant.startswith("clip"):
        nn.utils.clip_grad_norm_(oracle.parameters(), MAX_NORM)
    right = torch.cat([p.grad.flatten() for p in oracle.parameters()])  # (404,)

    model = DDP(model, device_ids=place.device_ids)
    sent: list[int] = []  # bytes of each all-reduce
    model.register_comm_hook(sent, count_and_average)
    pieces = list(zip(x[rank::world_size].chunk(k), y[rank::world_size].chunk(k), strict=True))
    for i, (x_i, y_i) in enumerate(pieces):
        last = i + 1 == k
        sync = {"first": i == 0, "every": True, "never": False}.get(args.variant, last)
        with nullcontext() if sync or args.variant == "forward_outside" else model.no_sync():
            loss = nn.functional.mse_loss(model(x_i), y_i)
        with nullcontext() if sync or args.variant == "backward_outside" else model.no_sync():
            (loss if args.variant == "unscaled" else loss / k).backward()
        if args.variant == "clip_early" or (args.variant == "clip_late" and last):
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)

    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    distance = ((gradient - right).norm() / right.norm()).item()
    log(all_reduces=len(sent), bytes_sent=sum(sent), distance=distance, spread=spread(model))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
