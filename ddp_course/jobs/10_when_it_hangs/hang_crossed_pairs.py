"""Two ranks talk to each other in an order in which neither can go on.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/hang_crossed_pairs.py --order both-receive --timeout-s 3

    both-receive  each waits for the other's tensor before it sends its own
    both-send     each sends before it receives; with Gloo a send ends only when it is received
    wrong-peer    every rank receives from the wrong side of the ring (needs three ranks)
    right         even ranks send first, odd ranks receive first

Look for: `doing`. Each rank names a peer, and the peer names it back: a circle. `dist.isend`,
`dist.irecv` and `dist.batch_isend_irecv` begin both at once, so that no order can be wrong.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

ORDERS = ["both-receive", "both-send", "wrong-peer", "right"]

parser = argparse.ArgumentParser()
parser.add_argument("--order", choices=ORDERS, default="both-receive")
parser.add_argument("--timeout-s", type=float, default=30.0, help="how long a message may wait")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % world_size, (rank - 1) % world_size  # neighbours in a ring
    mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
    mine, theirs = mine.to(place.device), theirs.to(place.device)

    send_first = {"both-receive": False, "both-send": True}.get(args.order, rank % 2 == 0)
    source = after if args.order == "wrong-peer" else before
    if world_size > 1 and send_first:
        log(doing=f"send to rank {after}")
        dist.send(mine, dst=after)
    if world_size > 1:
        log(doing=f"recv from rank {source}")
        dist.recv(theirs, src=source)
    if world_size > 1 and not send_first:
        log(doing=f"send to rank {after}")
        dist.send(mine, dst=after)

    log(doing="done", received=theirs)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
