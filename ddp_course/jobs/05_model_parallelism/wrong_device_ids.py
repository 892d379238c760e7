"""`device_ids` for a model that lies on two devices: DDP refuses, before the first step.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/05_model_parallelism/wrong_device_ids.py

Where there are two GPUs for each rank, the two halves lie on them. Elsewhere both lie on the CPU:
there DDP refuses `device_ids` by the very same test, with the same words, but for the reason that
the CPU is no GPU. (With several GPUs this is not verified.)

Look for: a ValueError that ends with where the parameters are. The cure is to leave `device_ids`
out: it tells DDP to move the input to that one device, and a model on two moves it by itself.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()


def main() -> None:
    parser.parse_args()
    place = my_place()
    local_rank = int(os.environ["LOCAL_RANK"])
    first = second = torch.device("cpu")
    if torch.cuda.device_count() >= 2 * int(os.environ["LOCAL_WORLD_SIZE"]):
        first, second = (torch.device("cuda", 2 * local_rank + i) for i in range(2))
    dist.init_process_group(place.backend, timeout=place.timeout)

    model = nn.Sequential(nn.Linear(8, 8).to(first), nn.Linear(8, 8).to(second))
    log(state="wrapping", devices=[str(first), str(second)])
    DDP(model, device_ids=[local_rank])  # raises
    log(state="training")

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
