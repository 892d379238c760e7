"""Training that may be killed at any moment and goes on, bit for bit, in a fresh process.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/resume_training.py

Press Ctrl-C in the middle (`--pause-ms 100` gives you the time), then run it again with
`--resume runs/resume_training`. Look for: `weights`, `moments`, `learning_rate` and `next_random`
at the end. A run that was killed and resumed has those of one that never was.
"""

import argparse
import os  # NEW:
import time
from pathlib import Path

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # NEW:

from ddp_course.rank.data import load
from ddp_course.rank.report import log, my_folder, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--resume", type=str, default="", help="folder of the run to go on from")
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
parser.add_argument("--dropout", type=float, default=0.2, help="share of units left out")
parser.add_argument("--pause-ms", type=float, default=0.0, help="work pretended in each step")


def save(states: dict, random: list, step: int) -> None:
    draft, path = my_folder() / "checkpoint.draft", my_folder() / "checkpoint.pt"
    with open(draft, "wb") as file:
        torch.save({**states, "random": random, "step": step}, file)
        file.flush()
        os.fsync(file.fileno())  # wait for the disk: a power cut must not take it back
    os.replace(draft, path)  # atomic: before it `path` is the old file, after it the new one
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the new name, too, must reach the disk
    os.close(folder)


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

    torch.manual_seed(1)
    images, labels = load("digits", train=True)  # (1437, 1, 8, 8) in 0 … 1, (1437,)
    dataset = TensorDataset(images, labels, torch.arange(len(images)))
    sampler = DistributedSampler(dataset, drop_last=True)  # NEW: my share
    batch_size = GLOBAL_BATCH_SIZE // world_size  # NEW: of this rank
    epoch_steps = len(sampler) // batch_size  # 29, at any world size

    layers = nn.Linear(64, 16), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(16, 10)
    model = nn.Sequential(nn.Flatten(), *layers).to(device)
    model = DDP(model, device_ids=[local_rank] if on_gpu else None)  # NEW: averages gradients
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * epoch_steps)
    model(images[:1].to(device)).sum().backward()  # not a step: after its first backward
    optimizer.zero_grad()  # DDP regroups its buckets, and the same sums round differently

    parts = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler}
    step = 0
    if args.resume:
        saved = torch.load(Path(args.resume) / "checkpoint.pt", map_location="cpu")
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        step = saved["step"]
    torch.manual_seed(1_000_000 * rank + step)  # other dropout on every rank
    if args.resume and len(saved["random"]) == world_size:  # else: the states of other ranks
        torch.set_rng_state(saved["random"][rank][0])
        torch.cuda.set_rng_state_all(saved["random"][rank][1])

    while step < args.epochs * epoch_steps:
        epoch, done = divmod(step, epoch_steps)
        sampler.set_epoch(epoch)  # NEW: another order in every epoch, the same on all ranks
        rest = list(sampler)[done * batch_size :]  # what is left of it
        own = torch.Generator().manual_seed(epoch)  # without it a loader draws from dropout's
        loader = DataLoader(dataset, batch_size, sampler=rest, drop_last=True, generator=own)
        for x, y, samples in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            time.sleep(args.pause_ms / 1000)
            log(step=step, epoch=epoch, loss=loss.item(), samples=samples)
            step += 1
            if step % args.save_every == 0:
                random = [None] * world_size
                mine = torch.get_rng_state(), torch.cuda.get_rng_state_all()
                dist.all_gather_object(random, mine)  # every rank has its own; the file needs all
                if rank == 0:
                    save({name: part.state_dict() for name, part in parts.items()}, random, step)

    moments = [v.flatten() for state in optimizer.state.values() for v in state.values()]
    log(weights=nn.utils.parameters_to_vector(model.parameters()), moments=torch.cat(moments))
    log(learning_rate=scheduler.get_last_lr()[0], next_random=torch.rand(1).item())
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
