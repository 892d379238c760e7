"""More ranks with the same batch each: the global batch grows, and the learning rate has to follow.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/09_cheaper_steps/scale_learning_rate.py --lr 0.4

Look for: `accuracy` after the same number of epochs, and `steps`, how many of them that was.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--local-batch", type=int, default=48, help="samples of a rank in a step")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8) in 0 … 1, (1437,)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = DDP(model.to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    step = 0
    for _ in range(args.epochs):
        for batch in torch.randperm(len(images)).split(args.local_batch * world_size)[:-1]:
            mine = batch[rank::world_size]
            optimizer.zero_grad()
            scores = model(images[mine].to(place.device))
            loss = nn.functional.cross_entropy(scores, labels[mine].to(place.device))
            loss.backward()
            optimizer.step()
            log(step=step, loss=loss.item())
            step += 1

    images, labels = load("digits", train=False)
    x, y = images[rank::world_size].to(place.device), labels[rank::world_size].to(place.device)
    with torch.no_grad():
        right = (model.module(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    global_batch = args.local_batch * world_size
    log(accuracy=right.item() / len(images), steps=step, global_batch=global_batch, lr=args.lr)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
