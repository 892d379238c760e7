"""Shares of unequal size under DDP: the mean of the means is not the mean, a weighted sum is.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/03_uneven_workloads/weight_batches.py --loss weighted

Rank r takes r + 1 parts of every batch. DDP always averages gradients over ranks, so

    mean       each rank's mean loss: a sample on the rank with few counts more than one elsewhere
    weighted   each rank's summed loss x world size / samples on all ranks: all samples count alike

Look for: `weights`. Only `weighted` ends where one rank with all the data ends (--nproc-per-node=1,
which is `train_one_process` again). `samples` is the size of the share.
"""

import argparse
import os  # NEW:

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:
from torch.utils.data import DataLoader, TensorDataset

from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48

parser = argparse.ArgumentParser()
parser.add_argument("--loss", choices=["mean", "weighted"], default="mean")
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


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
    images = torch.randn(480, 1, 8, 8)  # as large as the handwritten digits of a later rung
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    loader = DataLoader(TensorDataset(images, labels), batch_size=GLOBAL_BATCH_SIZE)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(device)
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)  # NEW: averages gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            parts = world_size * (world_size + 1) // 2  # NEW: 1 + 2 + … + world_size
            first = len(x) * rank * (rank + 1) // 2 // parts  # NEW:
            last = len(x) * (rank + 1) * (rank + 2) // 2 // parts  # NEW:
            x, y = x[first:last], y[first:last]  # NEW: my share: the higher my rank, the larger
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            losses = nn.functional.cross_entropy(model(x), y, reduction="none")  # NEW: one a sample
            loss = losses.mean()  # NEW:
            if args.loss == "weighted":  # NEW:
                samples = torch.tensor(len(x), device=device)  # NEW:
                dist.all_reduce(samples)  # NEW: how many there are on all ranks in this step
                loss = losses.sum() * world_size / samples  # NEW: DDP will divide by world_size
            loss.backward()
            optimizer.step()
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x))
            step += 1

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
