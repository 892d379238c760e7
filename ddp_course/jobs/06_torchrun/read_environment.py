"""What torchrun tells each rank: environment variables, and nothing else.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/06_torchrun/read_environment.py

Look for: RANK, which counts all processes, LOCAL_RANK, which counts those of one torchrun, and
GROUP_RANK, which counts the torchruns. One torchrun on each machine is one *node*.
"""

import argparse
import os

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

NAMES = (
    "RANK", "WORLD_SIZE",  # which process of the job I am, of how many
    "LOCAL_RANK", "LOCAL_WORLD_SIZE",  # the same on this node: picks the device
    "GROUP_RANK", "GROUP_WORLD_SIZE",  # which node this is, of how many
    "MASTER_ADDR", "MASTER_PORT",  # where the ranks meet
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",  # how often all were started again
    "OMP_NUM_THREADS",  # threads of each rank; torchrun says 1 if nobody says more
)  # fmt: skip

parser = argparse.ArgumentParser()


def main() -> None:
    parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    told = {name: os.environ.get(name, "not set") for name in NAMES}
    for name, value in told.items():
        print(f"{name}={value}")
    log(told=told, **{name.lower(): value for name, value in told.items() if name != "RANK"})

    nodes = torch.zeros(int(os.environ["GROUP_WORLD_SIZE"]), dtype=torch.int64, device=place.device)
    nodes[int(os.environ["GROUP_RANK"])] = 1
    dist.all_reduce(nodes)  # (nodes,): how many ranks say that they are on each node
    log(ranks_on_node=nodes)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
