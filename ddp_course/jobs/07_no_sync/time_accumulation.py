"""Where the time of one optimizer step goes: k micro-batches, and an all-reduce now and then.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/07_no_sync/time_accumulation.py --micro-batches 4 --sync last

Look for: on the timeline of `launch("time_accumulation", trace=True)`, k forwards and backwards,
and all-reduces under each backward (`--sync every`) or under the last one only. `all_reduces` and
`mib_sent` count one step; `step_ms` is what one step took.
"""

import argparse
import os  # NEW:
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:

from ddp_course.rank.report import log, run_rank, span, traced

WARM_UP_STEPS = 2  # DDP sends one bucket in its first step, then rebuilds them in ready order
TRACED_STEPS = 4

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batches", type=int, default=4, help="per optimizer step")
parser.add_argument("--sync", choices=["last", "every"], default="last", help="which to average")
parser.add_argument("--batch", type=int, default=32, help="samples per rank and micro-batch")
parser.add_argument("--layers", type=int, default=8, help="layers of 512 x 512, 1 MiB each")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def count_and_average(sent: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
    sent.append(bucket.buffer().nbytes)  # DDP calls this once for each bucket that it sends
    return allreduce_hook(None, bucket)  # what DDP does without a hook


def main() -> None:
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])  # NEW: my number on this machine; torchrun sets it
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # NEW: one each
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")  # NEW:
    if on_gpu:  # NEW:
        torch.cuda.set_device(device)  # NEW: else every rank would begin on GPU 0
    dist.init_process_group("nccl" if on_gpu else "gloo")  # NEW: the backend for this device

    torch.manual_seed(args.seed)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(args.layers)])
    model.to(device)
    device_ids = [local_rank] if on_gpu else None  # NEW:
    model = DDP(model, device_ids=device_ids, bucket_cap_mb=1)  # NEW:
    sent: list[int] = []  # bytes of each all-reduce
    model.register_comm_hook(sent, count_and_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    torch.manual_seed(args.seed + 1 + dist.get_rank())  # NEW: every rank draws data of its own
    x = torch.randn(args.micro_batches, args.batch, 512, device=device)
    y = torch.randn(args.micro_batches, args.batch, 512, device=device)

    def train_step(step: int) -> None:
        optimizer.zero_grad()
        sent.clear()
        started = time.perf_counter()
        for i in range(args.micro_batches):
            sync = args.sync == "every" or i + 1 == args.micro_batches
            with nullcontext() if sync else model.no_sync():
                with span("forward"):
                    loss = nn.functional.mse_loss(model(x[i]), y[i]) / args.micro_batches
                with span("backward"):
                    loss.backward()
        with span("optimizer"):
            optimizer.step()
        loss = loss.item()  # on a GPU this waits for the step to finish
        log(step=step, loss=loss, step_ms=(time.perf_counter() - started) * 1000)

    for step in range(WARM_UP_STEPS):
        train_step(step)
    with traced():
        for step in range(WARM_UP_STEPS, WARM_UP_STEPS + TRACED_STEPS):
            train_step(step)

    log(all_reduces=len(sent), mib_sent=sum(sent) / 2**20)  # in one step
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
