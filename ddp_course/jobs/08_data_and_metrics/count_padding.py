"""What an accuracy becomes when samples that fill up the ranks' shares are counted twice.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/count_padding.py

Every rank trains the same small classifier (no DDP: only the evaluation matters here), and the test
set is evaluated in three ways, for several sizes of it.

Look for: `once`, each sample on one rank only, counts added up; `padded`, the shares of
DistributedSampler; `mean`, the mean of the ranks' own accuracies on shares of different sizes.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--sizes", type=int, nargs="+", default=[9, 13, 21, 357], help="test samples")
parser.add_argument("--steps", type=int, default=4, help="of training: few, so that it errs")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same model on every rank
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8), (1437,)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(args.steps):
        optimizer.zero_grad()
        x, y = images.to(place.device), labels.to(place.device)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    images, labels = load("digits", train=False)  # (360, 1, 8, 8), (360,)
    with torch.no_grad():
        right = (model(images.to(place.device)).argmax(1) == labels.to(place.device)).double()

    def share_of_right(mine: list[int]) -> float:
        """Right answers and samples of all ranks' shares, added up, then divided."""
        counts = torch.stack([right[mine].sum(), torch.tensor(len(mine)).to(right)])
        dist.all_reduce(counts)
        return (counts[0] / counts[1]).item()

    for size in args.sizes:
        once = list(range(rank, size, world_size))
        padded = list(DistributedSampler(range(size), shuffle=False))
        mean = right[once].mean()
        dist.all_reduce(mean)
        log(
            size=size, samples_counted=len(padded) * world_size, once=share_of_right(once),
            padded=share_of_right(padded), mean=mean.item() / world_size,
        )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
