"""One rank never comes to a collective: the others wait for it, and can only say how long.

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        ddp_course/jobs/10_when_it_hangs/hang_missing_rank.py --timeout-s 3

    lock     rank 1 waits for a lock that nobody will release
    returns  rank 1 leaves the function early; the program goes on, and waits at its end
    loops    rank 1 computes for ever

Look for: `doing`, the last thing that each rank began, and how little the errors say. The sentence
of `diagnose(run)` names the rank that did not come, and the line where the others wait for it.
"""

import argparse
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--how", choices=["lock", "returns", "loops"], default="lock")
parser.add_argument("--at-step", type=int, default=3, help="the step in which rank 1 goes missing")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def go_missing(how: str) -> None:
    log(doing="something else")
    lock = threading.Lock()
    lock.acquire()
    while how == "loops":
        torch.ones(8) + 1
    if how == "lock":
        lock.acquire()  # it is held already, by this very thread


def train(args: argparse.Namespace, place) -> None:
    gradient = torch.ones(1000, device=place.device)
    for step in range(6):
        if dist.get_rank() == 1 and step == args.at_step:
            go_missing(args.how)
            return
        log(step=step, doing=f"all_reduce of step {step}")
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)

    train(args, place)
    log(doing="barrier at the end")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
