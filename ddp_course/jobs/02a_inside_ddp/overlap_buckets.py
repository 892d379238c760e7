"""Where DDP's time goes: buckets of gradients, averaged while backward still runs.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02a_inside_ddp/overlap_buckets.py --bucket-mb 1

Look for: on the timeline of `launch("overlap_buckets", trace=True)`, one all-reduce per bucket. A
bucket leaves as soon as its gradients are ready: small ones early, one large one only at the end.
"""

import argparse
import os  # NEW:
import time

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:

from ddp_course.rank.report import log, run_rank, span, traced

WARM_UP_STEPS = 2  # DDP sends one bucket in its first step, then rebuilds them in ready order
TRACED_STEPS = 2

parser = argparse.ArgumentParser()
parser.add_argument("--bucket-mb", type=float, default=1.0, help="DDP's bucket_cap_mb, in MiB")
parser.add_argument("--batch", type=int, default=128, help="samples per rank and step")
parser.add_argument("--layers", type=int, default=8, help="layers of 512 x 512, 1 MiB each")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


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
    model = DDP(model, device_ids=device_ids, bucket_cap_mb=args.bucket_mb)  # NEW:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    torch.manual_seed(args.seed + 1 + dist.get_rank())  # NEW: every rank draws data of its own
    x = torch.randn(args.batch, 512, device=device)
    y = torch.randn(args.batch, 512, device=device)

    def train_step(step: int) -> None:
        optimizer.zero_grad()
        started = time.perf_counter()
        with span("forward"):
            loss = nn.functional.mse_loss(model(x), y)
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

    sizes = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]  # bytes; no public way yet
    buckets_mb = [int(size) / 2**20 for size in sizes.split(",")]
    log(buckets=len(buckets_mb), buckets_mb=buckets_mb)
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
