"""Which samples DistributedSampler gives to which rank, and which it gives twice.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/share_samples.py --samples 10

Look for: `indices` of each rank, one row; `twice`, the samples that more than one rank has.
"""

import argparse

import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=10, help="in the data set")
parser.add_argument("--drop-last", action="store_true", help="leave out what does not divide")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    dataset = range(args.samples)  # all that a sampler asks of a data set is its length
    sampler = DistributedSampler(dataset, shuffle=False, drop_last=args.drop_last)
    mine = list(sampler)  # rank r has r, r + N, r + 2N, …; what is missing at the end is repeated

    everybody: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, mine)
    given = sorted(index for theirs in everybody for index in theirs)
    twice = sorted({index for index in given if given.count(index) > 1})
    never = sorted(set(dataset) - set(given))
    log(indices=mine, given=len(given), twice=twice, never=never)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
