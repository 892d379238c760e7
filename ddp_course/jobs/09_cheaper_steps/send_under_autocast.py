"""What DDP sends in mixed precision: the type of the parameters decides, not that of the forward.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/09_cheaper_steps/send_under_autocast.py --precision autocast

Look for: `forward_in`, the type of what the layers compute; `gradients_in`, that of the gradients;
and the bytes that `collectives(run).handed()` shows.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--precision", choices=["float32", "autocast", "bfloat16"], default="float32")
parser.add_argument("--steps", type=int, default=4)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)).to(place.device)
    x = torch.randn(16, 256, device=place.device)
    if args.precision == "bfloat16":  # everything, parameters as well
        model, x = model.bfloat16(), x.bfloat16()
    model = DDP(model, device_ids=place.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mixed = args.precision == "autocast"

    for step in range(args.steps):
        optimizer.zero_grad()
        with torch.autocast(place.device.type, dtype=torch.bfloat16, enabled=mixed):
            y = model(x)  # under autocast the matrix products are computed in bfloat16
            loss = y.float().square().mean()
        loss.backward()
        optimizer.step()
        log(step=step, loss=loss.item())

    gradient = next(model.parameters()).grad
    log(forward_in=str(y.dtype), gradients_in=str(gradient.dtype))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
