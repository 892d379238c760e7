"""Every rank sends first and receives afterwards: nobody receives, so nobody has sent.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/02d_collectives/wrong_ring_order.py --first send

    send      each rank: send to the next, then receive from the one before
    turns     even ranks send first, odd ranks receive first
    isend     each begins its send, receives, then waits for its send

Look for: `send` ends by a time-out, with every rank in the same line.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--first", choices=["send", "turns", "isend"], default="send")
parser.add_argument("--kib", type=int, default=256, help="size of a message")
parser.add_argument("--timeout_s", type=float, default=3.0, help="how long a rank waits")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    timeout = timedelta(seconds=args.timeout_s)
    dist.init_process_group(place.backend, timeout=timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % world_size, (rank - 1) % world_size
    mine = torch.full((args.kib * 256,), float(rank), device=place.device)
    theirs = torch.empty_like(mine)

    if args.first == "isend":
        sending = dist.isend(mine, dst=following)
        dist.recv(theirs, src=before)
        sending.wait()
    elif args.first == "send" or rank % 2 == 0:
        dist.send(mine, dst=following)
        dist.recv(theirs, src=before)
    else:
        dist.recv(theirs, src=before)
        dist.send(mine, dst=following)

    log(received=theirs.mean())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
