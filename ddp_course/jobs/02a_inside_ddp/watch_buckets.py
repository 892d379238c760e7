"""When does a bucket leave? Each gradient that becomes ready is counted, and each bucket's start.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02a_inside_ddp/watch_buckets.py

Four layers a, b, c, d of 1 MiB, used in this order; buckets of 1 MiB. Backward reaches d first.
`--registered reversed` builds the same model, and adds the layers to it in the order d, c, b, a.

Look for: `left_after`, how many of the 8 gradients were ready when a bucket left. In the first step
there is one bucket. DDP notes the order in which gradients become ready, and cuts buckets by it.
With `--find-unused` it never does: buckets keep the order of registration, and a full one waits.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--registered", choices=["in_order", "reversed"], default="in_order",
                    help="the order in which the model gets its layers")  # fmt: skip
parser.add_argument("--find-unused", action="store_true", help="DDP's find_unused_parameters")
parser.add_argument("--steps", type=int, default=2, help="training steps")


class Model(nn.Module):
    def __init__(self, names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(512, 512))  # a weight of 1 MiB, and a bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.d(self.c(self.b(self.a(x))))


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    model = Model("abcd" if args.registered == "in_order" else "dcba").to(place.device)
    names = {parameter: name for name, parameter in model.named_parameters()}
    ready: list[str] = []  # the gradients of this step, in the order in which they became ready
    for parameter in names:
        parameter.register_post_accumulate_grad_hook(lambda p: ready.append(names[p]))

    def leave(step: list[int], bucket: dist.GradBucket) -> Future[torch.Tensor]:
        holds = sorted(names[parameter] for parameter in bucket.parameters())
        log(step=step[0], bucket=bucket.index(), holds=holds, left_after=len(ready))
        return allreduce_hook(None, bucket)  # what DDP does without a hook

    ddp = DDP(
        model,
        device_ids=place.device_ids,
        bucket_cap_mb=1,
        find_unused_parameters=args.find_unused,
    )
    step = [0]
    ddp.register_comm_hook(step, leave)
    for step[0] in range(args.steps):
        ready.clear()
        ddp(torch.randn(8, 512, device=place.device)).sum().backward()
        log(ready=ready)

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
