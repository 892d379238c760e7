"""A port number written into a script: the second job on the machine cannot have it.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/06_torchrun/wrong_fixed_port.py

The ranks of a job meet in a store, a table of keys and values that listens on MASTER_PORT. This job
has met there. Now each of its ranks does what rank 0 of a second job on this machine would do, told
the same port: it opens a store.

Look for: `answer`, the error and its name EADDRINUSE, and `free`, how many ranks got a store when
they asked for port 0: the system then picks one that is free.
"""

import argparse
import os

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()


def open_store(port: int) -> str:
    """What opening a store on that port says: "" if it worked."""
    try:
        dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    except RuntimeError as error:  # dist.DistNetworkError
        return str(error).splitlines()[0]
    return ""


def main() -> None:
    parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    # By this variable torchrun tells its own ranks that it has opened the store for them.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # a second job would not be told
    answer = open_store(int(os.environ["MASTER_PORT"]))
    other = open_store(0)
    print(f"port {os.environ['MASTER_PORT']}: {answer or 'ok'}; port 0: {other or 'ok'}")

    got = torch.tensor([int(not answer), int(not other)], device=place.device)
    dist.all_reduce(got)  # how many ranks got a store, by either way
    log(answer=answer, fixed=got[0], free=got[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
