"""Exercise 08b: share out a stream among ranks and their workers.

Target: every worker of every rank calls `shard` with the same stream and gets its own samples: each
sample goes to one worker only, and the shares differ by one sample at most.

- The stream is read once, from front to back, and may be endless: pass samples on as they come.
- worker is the number of this loader's process on this rank, of `workers` (1 without any).

Difficulty: easy, about 10 minutes.

Write the marked lines, then run `check("ex08b")` in lesson 08. To run this file by itself:

    python -m torch.distributed.run --standalone --nproc-per-node=3 exercises/ex08b_shard_stream.py

API: itertools.islice(stream, first, None, step) takes every step-th sample from the first on.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def shard(
    stream: Iterable[Any], rank: int, world_size: int, worker: int, workers: int
) -> Iterator[Any]:
    """The samples of this worker on this rank."""
    # TODO: write from here …
    raise NotImplementedError("shard is yours to write")
    # … to here (1-5 lines)


class Stream(IterableDataset[int]):
    """Twelve samples; a worker reads what `shard` gives it."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return shard(range(12), dist.get_rank(), dist.get_world_size(), worker, workers)


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    loader = DataLoader(Stream(), batch_size=None, num_workers=2)
    log(samples=sorted(int(sample) for sample in loader))  # 4 on each of 3 ranks
    dist.barrier()  # a rank that leaves early breaks the line to those still connecting
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
