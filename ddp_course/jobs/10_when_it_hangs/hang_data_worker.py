"""A DataLoader's worker stands still, so its rank never reaches backward, and all others wait.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/10_when_it_hangs/hang_data_worker.py --timeout-s 4

Workers are forked: they inherit the *state* of every lock, and not the thread that would release
it. Here the last rank holds a lock (a logger's, a cache's, a tokenizer's) at that moment, and the
first item of its data set wants it. `--workers spawn` starts workers that inherit nothing.

Look for: `doing`. The rank that waits for data is no slower than the others at anything that it
does; it does nothing. A time-out of the loader (`DataLoader(timeout=…)`) turns that into an error.
"""

import argparse
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--workers", choices=["fork", "spawn"], default="fork")
parser.add_argument("--timeout-s", type=float, default=60.0, help="how long a collective may wait")

cache_lock = threading.Lock()


class Numbers(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with cache_lock:  # in a worker: a copy of the lock, as it was at the fork
            return torch.tensor([float(index)])


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    patience = timedelta(seconds=args.timeout_s)  # torch's own: 30 minutes, NCCL 10
    dist.init_process_group(place.backend, timeout=patience, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    loader = DataLoader(
        Numbers(), batch_size=4, num_workers=1, multiprocessing_context=args.workers
    )
    log(doing="the first batch")
    if rank == world_size - 1 and rank > 0:
        cache_lock.acquire()  # stands for: another thread of this rank is in the cache just now
    batches = iter(loader)  # the workers start here
    if cache_lock.locked():
        cache_lock.release()

    for step, batch in enumerate(batches):
        log(step=step, doing=f"all_reduce of step {step}")
        total = batch.sum().to(place.device)
        dist.all_reduce(total)
        log(step=step, total=total, doing="the next batch")

    log(doing="done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
