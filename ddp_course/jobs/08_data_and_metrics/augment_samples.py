"""Random augmentation on every rank: whose random numbers are they?

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/augment_samples.py

Look for: `first`, the first rotations of each rank, and `same_percent`, how many of them are those
of rank 0; with `--seed-by-rank` there is none.
"""

import argparse

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=32, help="of each rank")
parser.add_argument("--workers", type=int, default=2, help="processes that load, for each rank")
parser.add_argument("--seed-by-rank", action="store_true", help="a different seed on each rank")


class Rotated(Dataset):
    """Images that are rotated at random; of each only the angle is kept here."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> float:
        return round(30 * torch.rand(()).item() - 15, 2)  # degrees


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)  # so that all ranks build the same model …
    if args.seed_by_rank:
        torch.manual_seed(dist.get_rank())  # … and then draw different numbers
    # A loader's workers are seeded from this process's random numbers: base seed + worker id.
    loader = DataLoader(Rotated(args.samples), batch_size=8, num_workers=args.workers)
    angles = torch.cat(list(loader))  # (samples,)

    of_rank_0 = angles.clone()
    dist.broadcast(of_rank_0, src=0)
    same = (angles == of_rank_0).double().mean().item()
    log(first=angles[:3].tolist(), same_percent=100 * same)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
