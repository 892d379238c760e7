"""One rank ends while the others wait for it: six ways to go, and what the others then say.

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        ddp_course/jobs/10_when_it_hangs/crash_one_rank.py --how raises

    raises  an exception in the rank's own code
    memory  a tensor larger than the memory that it may have
    killed  SIGKILL (-9), without a word: what the system does when memory runs out
    native  a crash in native code (-11): an address that is not ours
    leaves  exit code 0 in the middle of the training; torchrun takes it for success
    none    all go on to the end

Look for: the exit codes. The ranks that wait get "Connection closed by peer" at once and may be
faster to report it than the rank whose fault it is.
"""

import argparse
import ctypes
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

WAYS = ["raises", "memory", "killed", "native", "leaves", "none"]

parser = argparse.ArgumentParser()
parser.add_argument("--how", choices=WAYS, default="raises")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a collective may wait")


def fail(how: str) -> None:
    if how == "raises":
        raise ValueError("image 17 has four channels instead of three")
    if how == "memory":
        torch.ones(1 << 46)  # 256 TiB
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "native":
        ctypes.string_at(0)  # what a broken C++ extension does
    if how == "leaves":
        sys.exit(0)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    gradient = torch.ones(1000, device=place.device)

    for step in range(6):
        log(step=step, doing=f"all_reduce of step {step}")
        if rank == world_size - 1 and step == 3:
            fail(args.how)
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)

    log(doing="done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
