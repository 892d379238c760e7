"""Bucket size against a slow link: what overlaps is free, and every message pays the latency.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/09_cheaper_steps/overlap_link.py --bucket-mb 1

The link is PRETENDED: each bucket's result is held back by latency + bytes / bandwidth. So is the
work of a layer, which sleeps: on two cores, ranks that really compute would disturb each other.

Look for: `step_ms`, the median of the steps after the first two; `buckets`, the messages of a step;
`pretended_link_ms`, how long the link was busy in it.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.link import PretendedLink, send
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

LAYERS, WIDTH, WORK_MS = 16, 256, 3.0  # each layer: 0.26 MB of gradients

parser = argparse.ArgumentParser()
parser.add_argument("--bucket-mb", type=float, default=25.0, help="DDP's bucket_cap_mb")
parser.add_argument("--latency-ms", type=float, default=1.0, help="of the pretended link")
parser.add_argument("--mb-per-s", type=float, default=100.0, help="of the pretended link")
parser.add_argument("--steps", type=int, default=6, help="to take; two are not counted")


class Work(torch.autograd.Function):
    """Does nothing in forward, and takes its time in backward."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(WORK_MS / 1000)
        return gradient


class Layer(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Work.apply(super().forward(x).tanh())


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(WIDTH, WIDTH) for _ in range(LAYERS))).to(place.device)
    model = DDP(model, device_ids=place.device_ids, bucket_cap_mb=args.bucket_mb)
    link = PretendedLink(latency_ms=args.latency_ms, mb_per_s=args.mb_per_s)
    model.register_comm_hook(link, send)
    x = torch.randn(8, WIDTH, device=place.device)

    times, messages = [], []
    for step in range(args.steps):
        dist.barrier()  # both begin together
        before, begin = link.messages, time.perf_counter()
        model(x).square().mean().backward()  # ends when every bucket has arrived
        times.append(1000 * (time.perf_counter() - begin))
        messages.append(link.messages - before)
        model.zero_grad()
        log(step=step, took_ms=times[-1])

    size = sum(p.numel() * p.element_size() for p in model.parameters())
    link_ms = messages[-1] * args.latency_ms + size / args.mb_per_s / 1000
    log(step_ms=statistics.median(times[2:]), buckets=messages[-1])
    log(pretended_link_ms=link_ms, pretended_work_ms=LAYERS * WORK_MS)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
