"""Exercise 07: accumulate gradients over micro-batches, and let DDP communicate once.

Target: every rank calls `accumulate(model, micro_batches)` with its own micro-batches, a list of
(x, y), as many as the others have. `model` is wrapped in DDP, its gradients are empty. Afterwards
each gradient is that of the mean squared error over all micro-batches of all ranks, and DDP has
averaged once. All micro-batches are of equal size; how many there are is len(micro_batches).

Difficulty: medium, about 15 minutes.

Write the marked lines, then run `check("ex07")` in lesson 07. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex07_accumulate_without_syncing.py

API: `with model.no_sync(): …`; contextlib.nullcontext() is a context that does nothing;
nn.functional.mse_loss(model(x), y) is the mean over one micro-batch.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def accumulate(model: DDP, micro_batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Leave in `model` the gradient over all micro-batches of all ranks, with one average."""
    # TODO: write from here …
    raise NotImplementedError("accumulate is yours to write")
    # … to here (4-7 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    model = nn.Linear(1, 1, bias=False).to(place.device)
    nn.init.zeros_(model.weight)
    model = DDP(model, device_ids=place.device_ids)
    x = torch.ones(2, 1, device=place.device)
    y = torch.full((2, 1), dist.get_rank() + 1.0, device=place.device)  # rank r: all r + 1
    accumulate(model, [(x, y), (x, 3 * y)])
    log(gradient=model.module.weight.grad)  # with 3 ranks, [[-8.0]] on each
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
