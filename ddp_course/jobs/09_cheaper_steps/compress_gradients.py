"""Gradients in fewer bytes: what each communication hook sends, and what it costs in accuracy.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/09_cheaper_steps/compress_gradients.py --hook bf16

Look for: `accuracy` on the 360 test digits, each counted once, beside the bytes that
`collectives(run).handed()` shows.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--hook", choices=["none", "bf16", "fp16", "powersgd"], default="none")
parser.add_argument("--rank", type=int, default=2, help="of PowerSGD's matrices")
parser.add_argument("--epochs", type=int, default=3, help="passes over the data")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8) in 0 … 1, (1437,)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(),
        nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10),
    ).to(place.device)  # fmt: skip
    model = DDP(model, device_ids=place.device_ids)  # 0.34 MB: one bucket
    if args.hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif args.hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif args.hook == "powersgd":  # a matrix as the product of two thin ones, and the rest kept
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=args.rank, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

    step = 0
    for _ in range(args.epochs):
        for batch in torch.randperm(len(images)).split(GLOBAL_BATCH_SIZE)[:-1]:
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
    log(accuracy=right.item() / len(images))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
