"""The model cut into stages, one for each rank, fed with micro-batches: a pipeline.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/05_model_parallelism/train_pipeline.py --schedule gpipe --micro-batches 4

Look for: `gradients` and `weights`, the rank's piece of those of `train_whole_model`; and, on
`stages(launch("train_pipeline", trace=True))`, who computes when. The numbers are computed for
real. The time is pretended, by sleeping, so that the picture does not depend on how many cores
you have: `--forward-ms` for a whole batch through the whole model, twice that for backward.
"""

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank, span, traced

LAYERS, WIDTH = 8, 8
GLOBAL_BATCH_SIZE, STEPS = 48, 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="gpipe", help="who, when")
parser.add_argument("--micro-batches", type=int, default=4, help="pieces of each batch")
parser.add_argument("--forward-ms", type=float, default=240.0, help="pretended, for a batch")
parser.add_argument("--seed", type=int, default=0, help="for the weights and the data")


class SlowStage(PipelineStage):
    work_s = 0.0  # for the forward of one micro-batch

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with span("forward"):
            time.sleep(self.work_s)
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with span("backward"):
            time.sleep(2 * self.work_s)
            return super().backward_one_chunk(*args, **kwargs)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    index, stages = dist.get_rank(), dist.get_world_size()  # one stage for each rank

    torch.manual_seed(args.seed)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]
    x = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)
    y = torch.randn(STEPS, GLOBAL_BATCH_SIZE, WIDTH, dtype=torch.float64)

    mine = layers[LAYERS * index // stages : LAYERS * (index + 1) // stages]
    module = nn.Sequential(*mine).to(place.device)
    stage = SlowStage(module, index, stages, place.device)
    schedule = SCHEDULES[args.schedule](stage, args.micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)

    def train_step(step: int) -> None:
        optimizer.zero_grad()
        inputs = [x[step].to(place.device)] if stage.is_first else []
        target = y[step].to(place.device) if stage.is_last else None
        losses: list[torch.Tensor] = []  # filled on the last stage, one for each micro-batch
        schedule.step(*inputs, target=target, losses=losses)  # forward and backward of all
        with span("optimizer"):
            optimizer.step()
        log(step=step, loss=torch.stack(losses).mean().item() if losses else None)

    for step in range(STEPS - 1):
        train_step(step)
    stage.work_s = args.forward_ms / 1000 / stages / args.micro_batches  # in the last step
    with traced():
        train_step(STEPS - 1)

    log(stage=index, stages=stages, layers=len(mine))
    log(gradients=torch.cat([p.grad.flatten() for p in module.parameters()]))
    log(weights=nn.utils.parameters_to_vector(module.parameters()))  # my layers only
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
