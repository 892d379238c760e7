"""How a rank calls the function of ex08b: for each of its workers, with a stream that counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torch.distributed as dist

from ddp_course.checks.calling import Function, Tensors

MOST = 10_000  # samples of one worker; a right answer ends far earlier


class Stream:
    """Samples that are read once, and a count of how many were."""

    def __init__(self, samples: list[int]) -> None:
        self._samples, self.read = samples, 0

    def __iter__(self) -> Iterator[int]:
        for sample in self._samples[self.read :]:
            self.read += 1
            yield sample


def drive(function: Function, inputs: Tensors, device: torch.device) -> Tensors:
    rank, world_size, outputs = dist.get_rank(), dist.get_world_size(), {}
    for case in ("several", "one"):
        workers, samples = int(inputs[f"{case}/workers"]), inputs[f"{case}/samples"].tolist()
        taken, ahead = [], 0
        for worker in range(workers):
            stream = Stream(samples)
            given = function(stream, rank, world_size, worker, workers)
            if not isinstance(given, Iterable):
                return {}
            given = iter(given)
            mine = list(itertools.islice(given, 1))
            ahead = max(ahead, stream.read)
            mine += itertools.islice(given, MOST)
            if not all(isinstance(one, int) for one in mine):
                return {}
            taken.append(np.array(mine, np.int64))
        outputs[f"{case}/taken"] = np.concatenate(taken)
        outputs[f"{case}/counts"] = np.array([len(one) for one in taken])
        outputs[f"{case}/read ahead"] = np.array(ahead)
    return outputs
