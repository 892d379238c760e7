"""Exercise 03b: stop together, or not at all.

Target: after each step every rank calls `agree_to_stop(wish, device)`: `wish` is True if this rank
wants to stop. It returns True on all ranks if at least one of them wants to stop, and False on all
ranks otherwise.

Difficulty: easy, about 5 minutes.

Write the marked lines, then run `check("ex03b")` in lesson 03. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        exercises/ex03b_stop_together.py

API: torch.distributed.all_reduce(tensor, op=dist.ReduceOp.MAX); a collective takes a tensor, not a
bool, and it must lie on this rank's `device`.
"""

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def agree_to_stop(wish: bool, device: torch.device) -> bool:
    """Return True on every rank if any rank's `wish` is True."""
    # TODO: write from here …
    raise NotImplementedError("agree_to_stop is yours to write")
    # … to here (2-4 lines)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    for step in range(100):
        stop = agree_to_stop(step == 5 + dist.get_rank(), place.device)
        log(step=step, stop=stop)  # True in step 5, on every rank
        if stop:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
