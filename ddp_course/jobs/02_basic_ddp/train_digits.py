"""Rung 4: DDP on real handwritten digits, shared out by a DistributedSampler.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02_basic_ddp/train_digits.py

Look for: the accuracy on digits never trained on, and `weights` that do not depend on how many
ranks there were: every rank's local batch is its part of the same global batch.
"""

import argparse
import os  # NEW:

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # NEW:

from ddp_course.rank.data import load
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the order of the data")


def main() -> None:
    args = parser.parse_args()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    local_rank = int(os.environ["LOCAL_RANK"])  # NEW: my number on this machine; torchrun sets it
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # NEW: one each
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")  # NEW:
    if on_gpu:  # NEW:
        torch.cuda.set_device(device)  # NEW: else every rank would begin on GPU 0
    dist.init_process_group("nccl" if on_gpu else "gloo")  # NEW: the backend for this device
    rank, world_size = dist.get_rank(), dist.get_world_size()  # NEW: who I am, of how many

    torch.manual_seed(args.seed)
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8) in 0 … 1, (1437,)
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset, seed=args.seed, drop_last=True)  # NEW: my share
    local_batch_size = GLOBAL_BATCH_SIZE // world_size  # NEW:
    loader = DataLoader(dataset, batch_size=local_batch_size, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(device)
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)  # NEW: averages gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)  # NEW: another order in every epoch, the same on all ranks
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x))
            step += 1

    images, labels = load("digits", train=False)  # (360, 1, 8, 8), (360,)
    x, y = images[rank::world_size], labels[rank::world_size]  # NEW: each image on one rank only
    with torch.no_grad():
        correct = (model(x.to(device)).argmax(1) == y.to(device)).sum()
    dist.all_reduce(correct)  # NEW: counts add up; a mean of the ranks' accuracies may not
    log(accuracy=correct.item() / len(images), test_images=len(images))

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
