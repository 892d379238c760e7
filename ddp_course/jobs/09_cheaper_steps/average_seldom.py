"""Local SGD: every rank trains alone, and every so often they average their weights.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/09_cheaper_steps/average_seldom.py --every 29

Look for: `accuracy` of each rank's own model, `spread` between their weights at the end, and the
bytes that `collectives(run).handed()` shows. `--every 1` sends as much as DDP.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=29, help="steps between two averages; 0: never")
parser.add_argument("--epochs", type=int, default=6, help="passes over the data, 29 steps each")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same start on all ranks: nothing of DDP is here to see to that
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8) in 0 … 1, (1437,)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model.to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    step = 0
    for _ in range(args.epochs):
        for batch in torch.randperm(len(images)).split(GLOBAL_BATCH_SIZE)[:-1]:
            mine = batch[rank::world_size]
            optimizer.zero_grad()
            scores = model(images[mine].to(place.device))
            nn.functional.cross_entropy(scores, labels[mine].to(place.device)).backward()
            optimizer.step()  # by this rank's gradient alone
            step += 1
            if args.every and step % args.every == 0:
                weights = nn.utils.parameters_to_vector(model.parameters()).detach()  # (2410,)
                dist.all_reduce(weights)
                nn.utils.vector_to_parameters(weights / world_size, model.parameters())

    images, labels = load("digits", train=False)
    with torch.no_grad():  # every rank looks at all of the test set: the models may differ
        right = (model(images.to(place.device)).argmax(1) == labels.to(place.device)).float()
    low = nn.utils.parameters_to_vector(model.parameters()).detach()
    high = low.clone()
    log(accuracy=right.mean().item(), steps=step)
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    log(spread=(high - low).max().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
