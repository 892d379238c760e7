"""The job that the benchmarks launch in every way: 4 ranks, a small model, 3 steps of DDP.

python -m torch.distributed.run --standalone --nproc-per-node=4 tools/bench_job.py
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.report import log, run_rank, span, traced


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=10)
    args, _ = parser.parse_known_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(args.width, args.width) for _ in range(4)]
    model = DDP(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(64, args.width)
    print("first line", flush=True)
    took = []
    with traced():
        for _ in range(args.steps):
            began = time.perf_counter()
            with span("forward"):
                loss = model(batch).square().mean()
            optimizer.zero_grad()
            with span("backward"):
                loss.backward()
            with span("optimizer"):
                optimizer.step()
            took.append(time.perf_counter() - began)
    log(step_ms=statistics.median(took) * 1e3)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
