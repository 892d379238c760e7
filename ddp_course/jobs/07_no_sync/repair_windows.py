"""A demo of accumulation that circulates, its faults, and their repair: 10 micro-batches, k = 4.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/07_no_sync/repair_windows.py \
        --forward outside --step-on first --scale nothing

These flags are the demo as it is found: the forward before `no_sync` begins, a step wherever
`i % k == 0`, a loss that is divided by nothing. Without flags everything is repaired.

Look for: `windows`, the micro-batches in each step; `lost`, those in none; `all_reduces`, which
should be one for each step; `distance` of the weights from those of one process that steps on
windows of 4, 4 and 2, relative to the way that they have moved.
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
from torch.nn.utils import parameters_to_vector

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

MICRO_BATCHES, K = 10, 4  # windows of 4, 4 and 2

parser = argparse.ArgumentParser()
parser.add_argument("--forward", choices=["inside", "outside"], default="inside", help="no_sync")
parser.add_argument("--step-on", choices=["last", "first", "full"], default="last", help="of k")
parser.add_argument("--scale", choices=["window", "k", "nothing"], default="window", help="by")


def count_and_average(sent: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
    sent.append(bucket.buffer().nbytes)  # DDP calls this once for each bucket that it sends
    return allreduce_hook(None, bucket)  # what DDP does without a hook


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double().to(place.device)
    x = torch.randn(MICRO_BATCHES, 6 * world_size, 20, dtype=torch.float64).to(place.device)
    y = torch.randn(MICRO_BATCHES, 6 * world_size, 4, dtype=torch.float64).to(place.device)
    start = parameters_to_vector(model.parameters()).detach()

    oracle = copy.deepcopy(model)  # one process, one step for each window
    optimizer = torch.optim.SGD(oracle.parameters(), lr=0.1)
    for x_w, y_w in zip(x.split(K), y.split(K), strict=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(oracle(x_w), y_w).backward()
        optimizer.step()
    right = parameters_to_vector(oracle.parameters())

    model = DDP(model, device_ids=place.device_ids)
    sent: list[int] = []  # bytes of each all-reduce
    model.register_comm_hook(sent, count_and_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    windows, lost = [], 0
    for i in range(MICRO_BATCHES):
        full = (i + 1) % K == 0
        ends = {"first": i % K == 0, "full": full, "last": full or i + 1 == MICRO_BATCHES}
        step_now = ends[args.step_on]
        length = min(K, MICRO_BATCHES - i // K * K)  # of the window that i is in
        x_i, y_i = x[i, rank::world_size], y[i, rank::world_size]
        with nullcontext() if step_now or args.forward == "outside" else model.no_sync():
            output = model(x_i)
        with nullcontext() if step_now else model.no_sync():
            loss = nn.functional.mse_loss(output, y_i)
            (loss / {"window": length, "k": K, "nothing": 1}[args.scale]).backward()
        lost += 1
        if step_now:
            optimizer.step()
            optimizer.zero_grad()
            windows, lost = [*windows, lost], 0

    distance = (parameters_to_vector(model.parameters()) - right).norm() / (right - start).norm()
    log(windows=windows, lost=lost, all_reduces=len(sent), distance=distance.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
