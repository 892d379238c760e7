"""What does `destroy_process_group` end? Connections and threads, counted before and after.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02c_how_ranks_meet/leave_group.py

Look for: `connections` and `threads` while a group is there and after it (counted in /proc, which
Linux has), and `answer`, what torch says to a second `init_process_group`.
"""

import argparse
import os

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()


def count_connections() -> int:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.lexists(link) and "socket:" in os.readlink(link) for link in links)


def main() -> None:
    parser.parse_args()
    place = my_place()

    def join() -> str:
        """Make the process group and use it once; "yes", or why not."""
        try:
            dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
        except ValueError as error:
            return str(error)
        dist.all_reduce(torch.ones(1, device=place.device))
        return "yes"

    def note(when: str, answer: str = "") -> None:
        log(
            when=when,
            connections=count_connections(),
            threads=len(os.listdir("/proc/self/task")),
            initialized=dist.is_initialized(),
            answer=answer,
        )

    note("before")
    note("in the group", join())
    note("a second time", join())
    dist.barrier()
    dist.destroy_process_group()
    note("after destroy")


if __name__ == "__main__":
    run_rank(main)
