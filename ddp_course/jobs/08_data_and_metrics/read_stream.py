"""An iterable data set has no sampler: whoever iterates reads everything.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/read_stream.py

Look for: `read`, how many samples each rank got from a stream of `--samples`, and `times`, how
often each sample was read by all of them together.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=120, help="in the stream")
parser.add_argument("--workers", type=int, default=2, help="processes that load, for each rank")


class Stream(IterableDataset):
    """Samples that come one after the other, as from a file or a network: here, numbers."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        yield from range(self.samples)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    loader = DataLoader(Stream(args.samples), batch_size=None, num_workers=args.workers)
    mine = [int(sample) for sample in loader]  # each worker has a copy of the stream

    everybody: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, mine)
    times = Counter(sample for theirs in everybody for sample in theirs)
    log(read=len(mine), times=sorted(set(times.values())))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
