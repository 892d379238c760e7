"""A training script to take away: copy it, put in your data and your model.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02_basic_ddp/template.py --epochs 4

The same file runs on a laptop, on all GPUs of a machine (--nproc-per-node=gpu), and on two
machines: start it on both with, in place of --standalone,

    --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 --rdzv-id=JOB

Look for: started again, it resumes; the result does not depend on the number of ranks.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH_SIZE = 48  # a multiple of the number of ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4, help="train until this many are done")
parser.add_argument("--checkpoint", default="checkpoint.pt", help="resume from it if it is there")


def main() -> None:
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])  # torchrun sets it: my number on this machine
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)  # before anything else touches a GPU
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same data on every rank; DDP sends rank 0's weights to the others
    inputs = torch.randn(1200, 64)
    labels = (inputs @ torch.randn(64, 10)).argmax(1)
    train, test = (
        TensorDataset(inputs[:960], labels[:960]),
        TensorDataset(inputs[960:], labels[960:]),
    )
    sampler = DistributedSampler(train, drop_last=True)  # shuffles, and gives this rank its share
    loader = DataLoader(train, GLOBAL_BATCH_SIZE // world_size, sampler=sampler, drop_last=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    first_epoch = 0
    if os.path.exists(args.checkpoint):  # the path is on a disk that all machines see
        saved = torch.load(args.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch = saved["epoch"] + 1

    for epoch in range(first_epoch, args.epochs):
        model.train()
        sampler.set_epoch(epoch)  # a different order in every epoch, the same on all ranks
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()  # averages the gradients over the ranks
            optimizer.step()

        model.eval()
        x, y = test[rank::world_size]  # each sample on one rank only
        with torch.no_grad():
            right = (model.module(x.to(device)).argmax(1) == y.to(device)).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {right.item() / len(test):.3f}", flush=True)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "epoch": epoch}, args.checkpoint + ".part")
            os.replace(args.checkpoint + ".part", args.checkpoint)  # whole or not at all
        dist.barrier()  # nobody goes on, or leaves, before it is saved

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
