"""Hello from every rank: one process each, with a number of its own, that meet at every step.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/00_start_here/hello_ranks.py

Look for: pids that differ, the same world size everywhere, and a sum that no rank could know
alone. Pause or kill one rank while it runs: the others cannot pass their next all_reduce.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5, help="how often the ranks meet")
parser.add_argument("--pause-ms", type=float, default=20.0, help="work pretended in each step")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    rank = dist.get_rank()  # which of all processes I am: 0 … world_size - 1
    world_size = dist.get_world_size()  # how many there are, on all machines together
    local_rank = int(os.environ["LOCAL_RANK"])  # which one on this machine: it picks the device
    print(f"hello, I am rank {rank} of {world_size}, pid {os.getpid()}, on {place.device}")
    log(
        rank_seen=rank,
        local_rank=local_rank,
        world_size=world_size,
        pid=os.getpid(),
        device=str(place.device),
        backend=place.backend,
        why=place.why,
    )

    for step in range(args.steps):
        time.sleep(args.pause_ms / 1000)  # where a real job would compute
        number = torch.tensor([float(rank + 1)], device=place.device)  # shape (1,)
        started = time.perf_counter()
        dist.all_reduce(number)  # in place: the sum over ranks; returns when every rank has called
        total = int(number.item())
        waited_ms = (time.perf_counter() - started) * 1000
        print(f"step {step}: I gave {rank + 1}, the sum over ranks is {total}")
        log(step=step, total=total, waited_ms=waited_ms)

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
