"""The whole of the course in one job: a convolutional network on real images that survives.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python -m torch.distributed.run --standalone \
        --nproc-per-node=2 --max-restarts=3 ddp_course/jobs/14_capstone/train_convnet.py \
        --epochs 1

Look for: `worlds`, how many ranks each start found; `accuracy`, each test image counted once;
`weights`, those of one process whatever was lost on the way.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.data import load
from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="digits", help="or mnist_5k; or mnist, once prepared")
parser.add_argument("--epochs", type=int, default=3, help="passes over the data")
parser.add_argument("--compress", action="store_true", help="send the gradients as bfloat16")
parser.add_argument("--save-every", type=int, default=5, help="steps between two checkpoints")
parser.add_argument("--pause-ms", type=float, default=0.0, help="more work pretended in each step")


def order_of(epoch: int, samples: int) -> torch.Tensor:
    """The order of the data in an epoch: the same on every rank, whatever the world size."""
    generator = torch.Generator().manual_seed(epoch)
    return torch.randperm(samples, generator=generator)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # the ranks share this machine's cores
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    images, labels = load(args.data, train=True)  # digits: (1437, 1, 8, 8) in 0 … 1, (1437,)
    torch.manual_seed(0)
    model = nn.Sequential(  # smooth everywhere, so that a rounding stays a rounding
        nn.Conv2d(1, 16, 3, padding=1),  # (batch, 16, 8, 8)
        nn.Tanh(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(images.shape[-1] // 4),  # (batch, 32, 4, 4)
        nn.Flatten(),
        nn.Linear(512, 10),
    ).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    path, done, worlds = my_folder() / "checkpoint.pt", 0, []
    if path.exists():  # an earlier start has saved
        saved = torch.load(path, map_location=place.device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done, worlds = saved["done"], saved["worlds"]
    worlds = [*worlds, world_size]
    model = DDP(model, device_ids=place.device_ids)
    if args.compress:
        model.register_comm_hook(None, bf16_compress_hook)
    log(resumed_at=done, world_size=world_size, pid=os.getpid(), node=os.environ["GROUP_RANK"])

    steps, began = len(images) // GLOBAL_BATCH_SIZE, time.perf_counter()  # 29 steps an epoch
    for step in range(done, args.epochs * steps):
        first = step % steps * GLOBAL_BATCH_SIZE
        batch = order_of(step // steps, len(images))[first : first + GLOBAL_BATCH_SIZE]
        mine = batch[rank::world_size]  # my share, for any world size
        x, y = images[mine].to(place.device), labels[mine].to(place.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(args.pause_ms / 1000)
        log(step=step + 1, loss=loss.item(), samples=len(x))
        if rank == 0 and (step + 1) % args.save_every == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**states, "done": step + 1, "worlds": worlds}, f"{path}.draft")
            os.replace(f"{path}.draft", path)  # at once: the old file or the new one
    step_ms = 1000 * (time.perf_counter() - began) / max(1, args.epochs * steps - done)

    images, labels = load(args.data, train=False)  # (360, 1, 8, 8), (360,)
    x, y = images[rank::world_size], labels[rank::world_size]  # each image on one rank only
    with torch.no_grad():
        right = (model.module(x.to(place.device)).argmax(1) == y.to(place.device)).sum()
    counts = torch.stack([right.cpu(), torch.tensor(len(x))]).to(place.device)
    dist.all_reduce(counts)  # counts add up; a mean of accuracies may not
    log(accuracy=counts[0].item() / counts[1].item(), test_images=int(counts[1]))

    log(worlds=worlds, step_ms=step_ms)
    log(weights=nn.utils.parameters_to_vector(model.parameters()))  # (9930,)
    dist.barrier()
    if rank == 0:
        path.unlink(missing_ok=True)  # nobody needs it any more
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
