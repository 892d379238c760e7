"""One model over two devices of one process, and DDP around it: no `device_ids`.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/05_model_parallelism/train_two_devices.py

Each rank needs two GPUs. Where there are fewer, both halves lie on the rank's one device: that
proves the code and the numbers, but saves no memory. The lines for GPUs are not verified here.

Look for: `devices`, and `weights` equal to those of `train_whole_model`, up to rounding.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

LAYERS, WIDTH = 8, 8
GLOBAL_BATCH_SIZE, STEPS = 48, 4

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


class TwoDevices(nn.Module):
    def __init__(self, layers: list[nn.Module], first: torch.device, second: torch.device) -> None:
        super().__init__()
        half = len(layers) // 2
        self.first, self.second = first, second
        self.bottom = nn.Sequential(*layers[:half]).to(first)
        self.top = nn.Sequential(*layers[half:]).to(second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.bottom(x.to(self.first))
        return self.top(hidden.to(self.second))  # backward carries the gradient back by itself


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() >= 2 * int(os.environ["LOCAL_WORLD_SIZE"]):
        first, second = (torch.device("cuda", 2 * local_rank + i) for i in range(2))
        torch.cuda.set_device(first)
    else:
        first = second = place.device
    # No device_id=: it would bind the group to one device, and this rank may have two.
    dist.init_process_group(place.backend, timeout=place.timeout)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    log(devices=[str(first), str(second)], two_devices=first != second)

    torch.manual_seed(args.seed)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]
    x = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    y = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    x, y = x[:, rank::world_size], y[:, rank::world_size]  # my share of each batch

    model = DDP(TwoDevices(layers, first, second))  # no device_ids: the module moves its input
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    for step in range(STEPS):
        optimizer.zero_grad()
        output = model(x[step])
        loss = nn.functional.mse_loss(output, y[step].to(second))  # where the output is
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item())

    log(gradients=torch.cat([p.grad.flatten().cpu() for p in model.parameters()]))  # shape (576,)
    log(weights=torch.cat([p.detach().flatten().cpu() for p in model.parameters()]))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
