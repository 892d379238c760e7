"""The process group is never made: the ranks do not find each other.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/hang_at_start.py --mistake absent --timeout-s 3

    absent   every rank is told of one rank more than there are: all wait for the one that never
             starts
    late     rank 1 is busy elsewhere before init_process_group, and never calls it
    address  the ranks look for rank 0 at an address where nobody listens
    name     the host of rank 0 has a name that does not resolve
    port     rank 0 is told to listen on a port that is in use already

Look for: the error. It comes from the store, the table in which ranks leave their addresses, before
there is any collective. Under torchrun `init_process_group()` without an address does all this.
"""

import argparse
import os
import socket
import threading
from datetime import timedelta

import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

MISTAKES = ["absent", "late", "address", "name", "port"]

parser = argparse.ArgumentParser()
parser.add_argument("--mistake", choices=MISTAKES, default="absent")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long the start may take")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log(doing="init_process_group", mistake=args.mistake)

    taken = socket.socket()  # with port 0 the system picks a free port, which is then in use
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    host = "no-such-host.invalid" if args.mistake == "name" else "127.0.0.1"

    if args.mistake == "late" and rank == 1:
        threading.Event().wait()  # for something that will not happen
    if args.mistake == "port":
        taken.listen()
        if rank == 0:  # what rank 0 does to be found; the others would only look for it
            dist.TCPStore(host, port, world_size, is_master=True, timeout=patience)
    if args.mistake == "absent":
        os.environ["WORLD_SIZE"] = str(world_size + 1)
    if args.mistake in ("address", "name"):
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))

    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    dist.barrier()
    log(doing="done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
