"""One model, four plans: what each rank holds, and what the ranks send for it.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/13_beyond_ddp/shard_model.py --plan shard

Look for: `parameters_mb`, `gradients_mb` and `optimizer_mb` of each rank, and `outputs` of the
trained model, which are those of DDP; `collectives(run).handed()` shows what was sent.
"""

import argparse
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks
WIDTH, LAYERS = 256, 8  # 526,336 parameters

parser = argparse.ArgumentParser()
parser.add_argument("--plan", choices=["ddp", "zero", "shard", "shard_keep"], default="ddp")
parser.add_argument("--steps", type=int, default=3)


class Model(nn.Module):
    # Layers with names of their own: fully_shard swaps parameters in place.
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def megabytes(tensors: Iterable[torch.Tensor]) -> float:
    """What this rank holds of them: of a sharded tensor, its piece."""
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local) / 1e6


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = Model().to(place.device)
    if args.plan.startswith("shard"):
        mesh = dist.device_mesh.init_device_mesh(place.device.type, (world_size,))
        for layer in model.layers:  # each layer is gathered when it is needed, and let go again
            fully_shard(layer, mesh=mesh, reshard_after_forward=args.plan == "shard")
        fully_shard(model, mesh=mesh)
    else:
        model = DDP(model, device_ids=place.device_ids)
    if args.plan == "zero":  # each rank has the optimizer's state of some parameters only
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    batches = torch.Generator().manual_seed(1)
    for step in range(args.steps):
        x = torch.randn(GLOBAL_BATCH_SIZE, WIDTH, generator=batches)[rank::world_size]
        optimizer.zero_grad()
        loss = (model(x.to(place.device)) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item())

    inner = optimizer.optim if args.plan == "zero" else optimizer
    moments = [t for state in inner.state.values() for t in state.values() if t.ndim > 0]
    log(
        parameters_mb=megabytes(model.parameters()),
        gradients_mb=megabytes(p.grad for p in model.parameters()),
        optimizer_mb=megabytes(moments),
    )
    with torch.no_grad():
        log(outputs=model(torch.ones(1, WIDTH, device=place.device))[0, :16])
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
