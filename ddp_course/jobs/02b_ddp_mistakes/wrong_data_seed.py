"""Each rank draws its own data, or its own split, and shares it out as if it were everybody's.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02b_ddp_mistakes/wrong_data_seed.py --own split

    nothing   one seed on all ranks
    data      each rank makes up its data set from a seed of its own
    split     one data set, but each rank splits it into training and test with a seed of its own

A sample is a number here, so that samples can be counted. Look for: `trained_on`, how many of rank
0's 400 training samples any rank trains on, and `leaked`, how many of its 80 test samples. No rank
sees more than its share, and nothing raises.
"""

import argparse

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--own", choices=["nothing", "data", "split"], default="split",
                    help="what each rank draws with a seed of its own")  # fmt: skip


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    first = 1000 * rank if args.own == "data" else 0
    samples = torch.arange(first, first + 480)
    torch.manual_seed(rank if args.own == "split" else 0)
    samples = samples[torch.randperm(480)]
    train, test = samples[:400], samples[400:]

    sampler = DistributedSampler(train)  # relies on `train` being the same on all ranks
    mine = train[list(sampler)].to(place.device)  # the samples that this rank trains on
    shares = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(shares, mine)
    trained_on = torch.cat(shares).cpu()

    log(
        trained_on=torch.isin(train, trained_on).sum(),
        leaked=torch.isin(test, trained_on).sum(),
        share=len(mine),
    )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
