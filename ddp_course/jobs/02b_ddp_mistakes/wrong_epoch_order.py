"""`sampler.set_epoch(epoch)` left out: every epoch deals the same batches in the same order.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_epoch_order.py

Look for: `repeated`, the number of batches in an epoch that are those of the epoch before. Without
set_epoch it is all of them: the data is shuffled once and never again. `--set-epoch` is the cure.
"""

import argparse

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--set-epoch", action="store_true", help="tell the sampler the epoch")
parser.add_argument("--epochs", type=int, default=3, help="passes over the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    samples = list(range(96))  # each sample is its own number, so that batches can be compared
    sampler = DistributedSampler(samples, seed=0)
    loader = DataLoader(samples, batch_size=8, sampler=sampler)

    before: list[list[int]] = []
    for epoch in range(args.epochs):
        if args.set_epoch:
            sampler.set_epoch(epoch)
        batches = [batch.tolist() for batch in loader]
        repeated = sum(new == old for new, old in zip(batches, before, strict=False))
        log(step=epoch, first_batch=batches[0], batches=len(batches), repeated=repeated)
        before = batches

    dist.barrier()  # who leaves early breaks the line to those who are still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
