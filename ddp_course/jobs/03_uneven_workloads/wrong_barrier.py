"""A barrier that only some ranks reach: the others go on to the next collective, and nobody passes.

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        ddp_course/jobs/03_uneven_workloads/wrong_barrier.py --timeout-s 5

    some        the barrier stands inside `if rank == 0`
    monitored   the same mistake with `dist.monitored_barrier`, which names the ranks that it misses
                (Gloo only)
    all         every rank calls it: right

Look for: `doing`, the last thing that each rank began: one rank in a barrier, the others in an
all_reduce. The error text of a barrier names nobody.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--barrier", choices=["some", "monitored", "all"], default="some")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank = dist.get_rank()
    gradient = torch.ones(3, device=place.device)

    log(step=0, doing="all_reduce of step 0")
    dist.all_reduce(gradient)

    if rank == 0:
        log(doing="writing the results")  # that is one rank's work, and needs no other rank
        if args.barrier != "all":
            log(doing="barrier")
        if args.barrier == "some":
            dist.barrier()
        if args.barrier == "monitored":
            dist.monitored_barrier(timeout=patience / 2, wait_all_ranks=True)
    if args.barrier == "all":
        log(doing="barrier")
        dist.barrier()

    log(step=1, doing="all_reduce of step 1")
    dist.all_reduce(gradient)
    log(doing="done", total=gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
