"""Whose loss is on the curve, and which epoch is the best: rank 0's, or everybody's?

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/report_metric.py

Look for: `own`, the validation loss of each rank's share after each epoch; `mean`, the loss of the
whole validation set; `best_by_own` and `best_by_all`, the epochs whose checkpoint one would keep.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--lr", type=float, default=1.5, help="large, so that epochs differ")
parser.add_argument("--validation", type=int, default=60, help="samples of the validation set")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8), (1437,)
    test_images, test_labels = load("digits", train=False)
    share = slice(rank, args.validation, world_size)  # of the validation set
    test_x, test_y = test_images[share].to(place.device), test_labels[share].to(place.device)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    history = []  # of (own, mean) for each epoch
    for epoch in range(args.epochs):
        for batch in torch.randperm(len(images)).split(GLOBAL_BATCH_SIZE)[:-1]:
            mine = batch[rank::world_size]
            optimizer.zero_grad()
            scores = model(images[mine].to(place.device))
            nn.functional.cross_entropy(scores, labels[mine].to(place.device)).backward()
            optimizer.step()
        with torch.no_grad():
            scores = model.module(test_x)
        total = nn.functional.cross_entropy(scores, test_y, reduction="sum").double()
        sums = torch.stack([total, torch.tensor(len(test_y)).to(total)])  # loss and samples
        own = (sums[0] / sums[1]).item()
        dist.all_reduce(sums)
        history.append((own, (sums[0] / sums[1]).item()))
        log(epoch=epoch, own=own, mean=history[-1][1])

    of_rank_0, of_all = zip(*history, strict=True)
    log(
        best_by_own=of_rank_0.index(min(of_rank_0)), best_by_all=of_all.index(min(of_all)),
    )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
