"""What a stage must keep in memory: parameters, and what autograd saves for the backward.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/05_model_parallelism/count_pipeline_memory.py \
        --schedule 1f1b --micro-batches 8

Look for: `parameter_kb`, this rank's share of the model; `saved_kb`, the most that autograd kept at
any one moment of a step; `in_flight`, the most micro-batches whose backward was still to come.

Counted are tensors, not what an allocator reserves. Not counted: gradients (as much again as the
parameters), the optimizer's state, and the buffers in which torch's stages receive.
"""

import argparse
from collections import Counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

LAYERS, WIDTH = 8, 64
GLOBAL_BATCH_SIZE = 48
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="gpipe", help="who, when")
parser.add_argument("--micro-batches", type=int, default=8, help="pieces of each batch")


class Kept:
    """A tensor that autograd keeps until the backward has used it; kept twice, it counts once."""

    holders: ClassVar[Counter[int]] = Counter()  # by address
    now = most = 0  # bytes

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.address = tensor, tensor.data_ptr()
        Kept.holders[self.address] += 1
        if Kept.holders[self.address] == 1:
            Kept.now += tensor.nbytes
            Kept.most = max(Kept.most, Kept.now)

    def __del__(self) -> None:
        Kept.holders[self.address] -= 1
        if Kept.holders[self.address] == 0:
            Kept.now -= self.tensor.nbytes


class CountedStage(PipelineStage):
    flying = in_flight = 0  # micro-batches whose backward is to come: now, and at most

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self.flying += 1
        self.in_flight = max(self.in_flight, self.flying)
        return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self.flying -= 1
        return super().backward_one_chunk(*args, **kwargs)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    index, stages = dist.get_rank(), dist.get_world_size()

    mine = range(LAYERS * index // stages, LAYERS * (index + 1) // stages)
    module = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in mine])
    stage = CountedStage(module.to(place.device), index, stages, place.device)
    schedule = SCHEDULES[args.schedule](stage, args.micro_batches, loss_fn=nn.functional.mse_loss)

    x, y = torch.randn(2, GLOBAL_BATCH_SIZE, WIDTH, device=place.device)
    inputs, target = [x] if stage.is_first else [], y if stage.is_last else None
    schedule.step(*inputs, target=target)  # the first step also finds out the shapes
    Kept.holders.update(p.data_ptr() for p in module.parameters())  # autograd saves these, too
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        schedule.step(*inputs, target=target)

    log(stage=index, parameter_kb=sum(p.nbytes for p in module.parameters()) / 1024)
    log(saved_kb=Kept.most / 1024, saved_after_kb=Kept.now / 1024, in_flight=stage.in_flight)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
