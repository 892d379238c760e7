"""The same two models and batches as thread_parallel, with a process for each replica: DDP.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/01_dp_vs_ddp/process_parallel.py --model deep

Look for: `compute_ms`, forward and backward of this rank's share, and `wait_ms`, from this rank's
last gradient until all are averaged: medians over the steps. There is no replicate and no gather;
`copied_mib` is what each rank hands to all-reduce in a step. `gap` is the error of the gradient.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["deep", "wide"], default="deep", help="its layers' kind")
parser.add_argument("--steps", type=int, default=12, help="optimizer steps")


def note_and_average(sent: list[tuple], bucket: dist.GradBucket) -> Future[torch.Tensor]:
    sent.append((time.perf_counter(), bucket.buffer().nbytes))  # this bucket's gradients are ready
    return allreduce_hook(None, bucket)  # what DDP does without a hook


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)  # one core for each process
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    layers, width, batch = (200, 16, 48) if args.model == "deep" else (2, 1024, 240)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(place.device)
    x, y = torch.randn(batch, width).to(place.device), torch.randn(batch, width).to(place.device)
    right = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))

    model = DDP(model, device_ids=place.device_ids)
    sent: list[tuple] = []  # when and how many bytes, for each all-reduce
    model.register_comm_hook(sent, note_and_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = x.chunk(world_size)[rank], y.chunk(world_size)[rank]  # my share
    history = []
    for step in range(args.steps):
        optimizer.zero_grad()
        sent.clear()
        started = time.perf_counter()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        value = loss.item()  # on a GPU this waits for all of it
        ended, (last_gradient, _) = time.perf_counter(), sent[-1]
        if step == 0:
            pairs = zip(model.parameters(), right, strict=True)
            gap = max((p.grad - g).abs().max().item() for p, g in pairs)
        optimizer.step()
        log(step=step, loss=value, step_ms=(ended - started) * 1000)
        history.append([(last_gradient - started) * 1000, (ended - last_gradient) * 1000])

    compute_ms, wait_ms = torch.tensor(history).median(0).values.tolist()
    log(compute_ms=compute_ms, wait_ms=wait_ms, copied_mib=sum(s for _, s in sent) / 2**20, gap=gap)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
