"""`shuffle=True` beside a sampler: does it slow convergence, as one can read? It does not run.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_shuffle.py

Look for: a ValueError before the first batch. The sampler decides the order, so the DataLoader
refuses a second opinion; DistributedSampler shuffles by itself (its own `shuffle=True`).
"""

import argparse

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()


def main() -> None:
    parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    samples = list(range(96))
    sampler = DistributedSampler(samples, seed=0)
    log(state="building the DataLoader")
    loader = DataLoader(samples, batch_size=8, sampler=sampler, shuffle=True)  # raises
    log(state="training", first_batch=next(iter(loader)))

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
