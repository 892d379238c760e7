"""Three ways to meet: how ranks that know nothing of each other become one process group.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02c_how_ranks_meet/join_group.py --method tcp

    env://    where to meet is in MASTER_ADDR and MASTER_PORT, which torchrun sets (the usual way)
    tcp://    an address that everyone was told; rank 0 listens there
    file://   a file that every rank can reach, on a shared disk for instance

Look for: `url`, where they met, `store`, what kept their addresses meanwhile, and the same sum
whichever way they came. Only env:// knows rank
and world size by itself; the others must be told.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--method", choices=["env", "tcp", "file"], default="env", help="how to meet")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # port 0: the system picks one that is free
        return int(probe.getsockname()[1])


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    # On a cluster you would be told the address. Here rank 0 picks a free one and tells the others
    # through the store (a table of keys and values) that torchrun's ranks share.
    store = next(dist.rendezvous("env://"))[0]
    if rank == 0:
        meeting_file = my_folder().resolve() / "meeting"
        meeting_file.unlink(missing_ok=True)  # what a killed job left there would mislead this one
        urls = {
            "env": "env://",
            "tcp": f"tcp://127.0.0.1:{free_port()}",
            "file": f"file://{meeting_file}",
        }
        store.set("url", urls[args.method])
    url = store.get("url").decode()  # waits until rank 0 has set it

    started = time.perf_counter()
    if args.method == "env":
        dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    else:
        dist.init_process_group(
            place.backend,
            init_method=url,
            rank=rank,
            world_size=world_size,
            timeout=place.timeout,
            device_id=place.device_id,
        )
    total = torch.tensor([rank + 1.0], device=place.device)  # shape (1,)
    dist.all_reduce(total)
    join_ms = (time.perf_counter() - started) * 1000
    store = dist.distributed_c10d._get_default_store()  # no public way to look at it
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    kind = type(store).__name__
    log(method=args.method, url=url, store=kind, total=int(total.item()), join_ms=join_ms)

    dist.barrier()  # nobody still needs the meeting place
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
