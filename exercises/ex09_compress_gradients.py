"""Exercise 09: a communication hook that sends the gradients in half the bytes.

Target: DDP calls `compress` for each bucket that is ready, in place of its own all-reduce. Return a
future of the bucket's buffer in which every number is the mean over all ranks, sent as bfloat16.

- A hook replaces the averaging as well: divide by the number of ranks yourself.
- Do not wait: start the all-reduce with async_op=True, and say with `then` what is done after it.

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex09")` in lesson 09. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex09_compress_gradients.py

API: bucket.buffer() is a float32 tensor of all gradients in the bucket; tensor.bfloat16();
dist.all_reduce(small, async_op=True).get_future(); future.then(function), which calls it with the
future when that is done: done.value()[0] is the reduced tensor.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def compress(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of the bucket's gradients over all ranks, sent as bfloat16."""
    # TODO: write from here …
    raise NotImplementedError("compress is yours to write")
    # … to here (3-7 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    model = DDP(nn.Linear(2, 1).to(place.device), device_ids=place.device_ids)
    model.register_comm_hook(None, compress)
    x = torch.full((4, 2), dist.get_rank() + 1.0, device=place.device)  # rank r: all r + 1
    model(x).mean().backward()
    log(gradient=model.module.weight.grad)  # with 3 ranks, [[2.0, 2.0]] on each: it is averaged
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
