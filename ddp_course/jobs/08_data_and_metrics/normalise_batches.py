"""BatchNorm under DDP: each rank normalises by its own batch, unless the statistics are shared.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/normalise_batches.py --shared

Look for: `weights` after the last step, beside those of one process with the whole batches.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

GLOBAL_BATCH_SIZE = 48  # splits evenly over 1, 2, 3, 4, 6 and 8 ranks

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--shared", action="store_true", help="statistics of the global batch")


class SumOverRanks(torch.autograd.Function):
    """An all_reduce that autograd can go back through: every rank's loss depends on every rank."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class Normalised(nn.Module):
    """Batch normalisation without its running means: (x - mean) / standard deviation."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        moments = torch.stack([x.mean(0), (x**2).mean(0)])  # (2, features), of this rank's batch
        if self.shared:
            moments = SumOverRanks.apply(moments) / dist.get_world_size()
        mean, square = moments
        return (x - mean) / (square - mean**2 + 1e-5).sqrt()


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    x = torch.randn(GLOBAL_BATCH_SIZE, 16, dtype=torch.float64)
    y = (x @ torch.randn(16, 1, dtype=torch.float64)).tanh()  # (48, 1): something to learn
    x, y = x[rank::world_size].to(place.device), y[rank::world_size].to(place.device)
    model = nn.Sequential(nn.Linear(16, 8), Normalised(args.shared), nn.Tanh(), nn.Linear(8, 1))
    model = DDP(model.double().to(place.device), device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item())
    log(weights=nn.utils.parameters_to_vector(model.parameters()), batch_of_a_rank=len(x))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
