"""The ranks come to the same point with different collectives: the outcome depends on the kind.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/hang_different_collectives.py \
        --differ operation --timeout-s 3

    operation  the last rank broadcasts where the others all-reduce: all wait until the time-out
    size       the last rank brings five numbers instead of four: Gloo ends one of them (SIGABRT)
    dtype      the last rank brings float64: twice the bytes, and the same end
    order      the last rank all-reduces a and b the other way round: no error, and a wrong sum
    none       all do the same

Look for: `total`. In `order` it is a mixture of a and b on every rank, and nothing fails: a
collective is matched by its position, never by the name of your variable.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

KINDS = ["operation", "size", "dtype", "order", "none"]

parser = argparse.ArgumentParser()
parser.add_argument("--differ", choices=KINDS, default="operation")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    odd = rank == world_size - 1 and world_size > 1

    a = torch.ones(4, device=place.device)
    dist.all_reduce(a)  # all ranks do this alike
    log(step=0, total=a.sum())

    b = torch.full((4,), 10.0, device=place.device)
    if odd and args.differ == "size":
        b = torch.full((5,), 10.0, device=place.device)
    if odd and args.differ == "dtype":
        b = b.double()
    if odd and args.differ == "order":
        a, b = b, a

    if odd and args.differ == "operation":
        dist.broadcast(b, src=rank)
    else:
        dist.all_reduce(b)
    dist.all_reduce(a)
    log(step=1, total=b.sum())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
