"""The output of a model on two devices is on the second one. The target is not.

    python -m torch.distributed.run --standalone --nproc-per-node=1 \
        ddp_course/jobs/05_model_parallelism/wrong_output_device.py --forgotten target

    target    the loss gets the output from the second device and the target from the first
    hidden    the second half gets what the first half computed, without `.to(second)`

Where there are two GPUs for each rank they are used. Elsewhere the second device is `meta`, which
has shapes but no numbers: enough for torch to notice. (With several GPUs this is not verified.)

Look for: a RuntimeError about the expected device. DDP moves no output and no target.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--forgotten", choices=["target", "hidden"], default="target", help="no .to()")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    local_rank = int(os.environ["LOCAL_RANK"])
    first, second = torch.device("cpu"), torch.device("meta")
    if torch.cuda.device_count() >= 2 * int(os.environ["LOCAL_WORLD_SIZE"]):
        first, second = (torch.device("cuda", 2 * local_rank + i) for i in range(2))
    dist.init_process_group(place.backend, timeout=place.timeout)
    bottom, top = nn.Linear(8, 8).to(first), nn.Linear(8, 8).to(second)
    x, target = torch.randn(12, 8).to(first), torch.randn(12, 8).to(first)

    hidden = bottom(x)
    log(state="hidden", device=str(hidden.device))
    if args.forgotten != "hidden":
        hidden = hidden.to(second)
    output = top(hidden)  # raises if hidden is still on the first device
    log(state="output", device=str(output.device))
    loss = nn.functional.mse_loss(output, target)  # raises: say target.to(output.device)
    log(state="loss", device=str(loss.device))

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
