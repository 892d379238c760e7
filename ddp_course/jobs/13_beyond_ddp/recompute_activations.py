"""Activation checkpointing: keep the input of a block only, and compute the rest again in backward.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/13_beyond_ddp/recompute_activations.py --recompute

Look for: `saved_kb`, what forward kept for backward; `forwards`, how often a block computed; and
`gradient`, which is the same.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

BLOCKS, WIDTH, BATCH = 8, 128, 256

parser = argparse.ArgumentParser()
parser.add_argument("--recompute", action="store_true", help="each block's activations")


class Block(nn.Module):
    forwards = 0  # of all blocks together

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Block.forwards += 1
        return x + self.down(self.up(x).relu())


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    blocks = nn.ModuleList(Block() for _ in range(BLOCKS)).to(place.device)
    weights = {p.data_ptr() for p in blocks.parameters()}
    saved: dict[int, int] = {}  # where a kept tensor lies: its bytes

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:  # parameters are there anyway
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    x = torch.randn(BATCH, WIDTH, device=place.device, requires_grad=True)
    y = x
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        for block in blocks:
            if args.recompute:
                keep(y)  # the block's input is all that is kept of it
                y = checkpoint(block, y, use_reentrant=False)
            else:
                y = block(y)
    y.square().mean().backward()
    log(saved_kb=sum(saved.values()) / 1000, forwards=Block.forwards, gradient=x.grad[0, :8])
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
