"""The gradient scaler of float16 training, and three ways to get it wrong on several ranks.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/09_cheaper_steps/scale_loss.py --mistake clip_scaled

Only the scaler is float16's; the model computes in float32, so that each number can be checked.

Look for: `norm`, the norm of the gradient that clipping saw; `scale` and `skipped` after a step in
which rank 1 has an infinite loss; `spread` between the ranks' weights at the end.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument(
    "--mistake", choices=["none", "clip_scaled", "infinite_loss", "one_scaler_resumed"],
    default="none",
)  # fmt: skip
parser.add_argument("--clip", type=float, default=1.0, help="largest norm; 0: no clipping")
parser.add_argument("--steps", type=int, default=4)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank = dist.get_rank()

    torch.manual_seed(0)
    model = nn.Linear(16, 1).to(place.device)
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(place.device.type, init_scale=2.0**16)
    if args.mistake == "one_scaler_resumed" and rank == 0:
        scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**10})
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank)).to(place.device)
    y = x.sum(1, keepdim=True)

    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if args.mistake == "infinite_loss" and rank == 1 and step == 1:
            loss = loss * torch.inf
        before = model.module.weight.detach().clone()
        scaler.scale(loss).backward()  # loss × scale, so that small gradients survive float16
        if args.mistake != "clip_scaled":
            scaler.unscale_(optimizer)  # gradients are what they are again
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip or torch.inf)
        scaler.step(optimizer)  # leaves the step out if any gradient is inf or nan
        scaler.update()
        skipped = bool((model.module.weight == before).all())
        log(step=step, norm=norm.item(), scale=scaler.get_scale(), skipped=skipped)

    weight = model.module.weight.detach()
    low, high = weight.clone(), weight.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    log(spread=(high - low).max().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
