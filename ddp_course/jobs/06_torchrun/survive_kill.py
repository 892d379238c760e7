"""A job that torchrun may start again at any moment, and that goes on where it was.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python -m torch.distributed.run --standalone \
        --nproc-per-node=2 --max-restarts=1 ddp_course/jobs/06_torchrun/survive_kill.py \
        --pause-ms 50

Kill one of its ranks while it runs (`kill -9` and the pid that it prints).

Look for: `resumed_at`, the step at which each start of the script began, and how far `weights` at
the end are from those of a run that nobody killed, on two ranks and on more.
"""

import argparse
import os  # NEW:
import time

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:
from torch.utils.data import DataLoader, TensorDataset

from ddp_course.rank.report import log, my_folder, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")
parser.add_argument("--save-every", type=int, default=1, help="steps between two checkpoints")
parser.add_argument("--pause-ms", type=float, default=0.0, help="more work pretended in each step")


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
    images = torch.randn(480, 1, 8, 8)  # as large as the handwritten digits
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn
    loader = DataLoader(TensorDataset(images, labels), batch_size=GLOBAL_BATCH_SIZE)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    path, done = my_folder() / "checkpoint.pt", 0  # the same place in every start
    if path.exists():  # on every rank; a cluster needs a disk that all its nodes share
        saved = torch.load(path, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])  # its momentum is part of the training
        done = saved["done"]
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)  # NEW: averages gradients
    log(resumed_at=done, world_size=world_size, pid=os.getpid(), node=os.environ["GROUP_RANK"])
    print(f"rank {rank} of {world_size}, pid {os.getpid()}: begins at step {done}")

    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            step += 1
            if step <= done:
                continue  # this batch has had its step
            x, y = x[rank::world_size], y[rank::world_size]  # NEW: my share of the batch
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            time.sleep(args.pause_ms / 1000)
            if rank == 0 and step % args.save_every == 0:
                states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "done": step}, f"{path}.draft")
                os.replace(f"{path}.draft", path)  # at once: the old file or the new one
            log(step=step, epoch=epoch, loss=loss.item(), samples=len(x))

    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # shape (1210,)
    dist.barrier()  # nobody needs the checkpoint any more
    if rank == 0:
        path.unlink()  # or the next training would find it, and do nothing
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
