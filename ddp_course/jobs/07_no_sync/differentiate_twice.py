"""A gradient of a gradient: DDP averages what `backward` leaves in `.grad`, and nothing else.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/07_no_sync/differentiate_twice.py

The loss gets a penalty on the length of a gradient, which `torch.autograd.grad` computes:

    inputs   of the output for the inputs: each sample has its own, so shares can be averaged
    weights  of the loss for the weights: each rank has that of its share, and DDP never sees it

Look for: `spread`, how far the ranks' results of `torch.autograd.grad` for the weights are apart,
and `distance`, how far the final gradient is from that of one process with all the data, relative
to its length.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--penalty", choices=["inputs", "weights"], default="inputs")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


def loss_with_penalty(model: nn.Module, x: torch.Tensor, y: torch.Tensor, on: str) -> torch.Tensor:
    x = x.clone().requires_grad_()
    output = model(x)
    loss = nn.functional.mse_loss(output, y)
    if on == "inputs":
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)  # (batch, 8)
        return loss + slope.square().sum(1).mean()
    slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return loss + sum(slope.square().sum() for slope in slopes)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2)).double().to(place.device)
    x = torch.randn(48, 8, dtype=torch.float64, device=place.device)
    y = torch.randn(48, 2, dtype=torch.float64, device=place.device)
    loss_with_penalty(model, x, y, args.penalty).backward()  # the oracle: one process, all data
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()

    model = DDP(model, device_ids=place.device_ids)
    x, y = x[rank::world_size], y[rank::world_size]
    mine = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
    everyone = [None] * world_size
    dist.all_gather_object(everyone, torch.cat([one.flatten() for one in mine]).cpu())
    stacked = torch.stack(everyone)  # (ranks, 46)
    log(spread=(stacked.amax(0) - stacked.amin(0)).max())

    loss_with_penalty(model, x, y, args.penalty).backward()
    got = torch.cat([p.grad.flatten() for p in model.parameters()])
    log(penalty=args.penalty, distance=(got - wanted).norm() / wanted.norm())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
