"""A job that goes on with the nodes that are left, and takes one back.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python -m torch.distributed.run --standalone \
        --nproc-per-node=2 --max-restarts=3 ddp_course/jobs/06_torchrun/follow_nodes.py

That is one node. For two, `print(run.command)` of `launch("follow_nodes", nodes=2, restarts=3)`.

Look for: `worlds`, how many ranks each start of the script found, and `weights` at the end: those
of one process that takes as many steps.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist  # NEW:
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP  # NEW:

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20, help="how long to train, at most")
parser.add_argument("--until-back", action="store_true", help="until a lost node is back")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")
parser.add_argument("--pause-ms", type=float, default=0.0, help="more work pretended in each step")


def came_back(worlds: list[int]) -> bool:
    """Whether the job was smaller than it had been, and is as large again."""
    return worlds[-1] == max(worlds) > min(worlds[worlds.index(max(worlds)) :])


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # the model is tiny: more threads would cost more than they save
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)  # NEW:
    rank, world_size = dist.get_rank(), dist.get_world_size()  # NEW: who I am, of how many

    torch.manual_seed(args.seed)
    images = torch.randn(480, 1, 8, 8)  # as large as the handwritten digits
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)  # (480,): a rule one can learn

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    path, done, worlds = my_folder() / "checkpoint.pt", 0, []
    if path.exists():  # on every rank; a cluster needs a disk that all its nodes share
        saved = torch.load(path, map_location=place.device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done, worlds = saved["done"], saved["worlds"]
    model = DDP(model, device_ids=place.device_ids)  # NEW: averages gradients
    worlds = [*worlds, world_size]  # of every start so far
    log(resumed_at=done, world_size=world_size, pid=os.getpid(), node=os.environ["GROUP_RANK"])

    step = done
    while step < args.steps:
        if args.until_back and came_back(worlds) and step >= done + 5:
            break  # after 5 steps together
        first = step % 10 * GLOBAL_BATCH_SIZE  # the batches come again and again
        share = slice(first + rank, first + GLOBAL_BATCH_SIZE, world_size)  # for any world
        x, y = images[share].to(place.device), labels[share].to(place.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(args.pause_ms / 1000)
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**states, "done": step, "worlds": worlds}, f"{path}.draft")
            os.replace(f"{path}.draft", path)
        log(step=step, loss=loss.item(), samples=len(x))

    log(steps=step, worlds=worlds, weights=nn.utils.parameters_to_vector(model.parameters()))
    dist.barrier()
    if rank == 0:
        path.unlink()  # nobody needs it any more
    dist.destroy_process_group()  # NEW:


if __name__ == "__main__":
    run_rank(main)
