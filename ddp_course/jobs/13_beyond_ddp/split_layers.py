"""Tensor parallelism: every rank has a part of each layer, and all ranks the same samples.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/13_beyond_ddp/split_layers.py

Look for: `outputs`, those of one process; `parameters_kb`, what a rank holds; and the all-reduces
of one forward and backward, in `collectives(run).handed()`.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

BLOCKS, WIDTH, HIDDEN = 4, 128, 512


class Block(nn.Module):
    """Wide, then narrow again: the hidden numbers can be split over ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).tanh())


def main() -> None:
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS))).double().to(place.device)
    mesh = dist.device_mesh.init_device_mesh(place.device.type, (dist.get_world_size(),))
    for block in model:
        # Each rank computes some of the hidden numbers, and adds its part to every output.
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    x = torch.randn(4, WIDTH, dtype=torch.float64, device=place.device)  # the same on every rank
    y = model(x)  # one all-reduce for each block: the sum of the ranks' parts
    y.square().mean().backward()  # and one for the gradient of each block's input

    held = sum(p.to_local().numel() * p.to_local().element_size() for p in model.parameters())
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    log(outputs=y[0, :16], parameters_kb=held / 1000, whole_kb=whole / 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
