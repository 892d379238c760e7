"""One slow rank: every rank's step takes as long as the slowest, because they meet in backward.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/03_uneven_workloads/wait_for_straggler.py --slow-ms 100

Look for: `work_ms`, the time until a rank is ready for its backward, large on the last rank only;
`backward_ms`, large on all *other* ranks, which wait there; and `step_ms`, the same on all. With
--turns a different rank is slow in each step. With --timeout-s below --slow-ms the ranks that wait
give up on a rank that is merely slow.
"""

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank, span, traced

parser = argparse.ArgumentParser()
parser.add_argument("--slow-ms", type=float, default=100.0, help="what the slow rank needs longer")
parser.add_argument("--turns", action="store_true", help="the ranks take turns at being slow")
parser.add_argument("--steps", type=int, default=9, help="training steps")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(12, 64, device=place.device)
    y = torch.randint(10, (12,), device=place.device)

    with traced():
        for step in range(args.steps):
            slow_rank = step % world_size if args.turns else world_size - 1
            started = time.perf_counter()
            optimizer.zero_grad()
            with span("data"):
                if rank == slow_rank:  # longer texts, larger images, a slow disk, a hot GPU …
                    time.sleep(args.slow_ms / 1000)
            with span("forward"):
                loss = nn.functional.cross_entropy(model(x), y)
            ready = time.perf_counter()
            with span("backward"):
                loss.backward()  # averages gradients: returns when every rank has brought its own
            with span("optimizer"):
                optimizer.step()
            loss = loss.item()  # on a GPU this waits for the step to finish
            ended = time.perf_counter()
            log(
                step=step,
                loss=loss,
                work_ms=(ready - started) * 1000,
                backward_ms=(ended - ready) * 1000,
                step_ms=(ended - started) * 1000,
            )

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
