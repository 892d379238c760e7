"""What a data set costs in memory when every rank has it: read into a tensor, or mapped.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/08_data_and_metrics/hold_data.py --how read

Look for: `own_mib`, what the data take of this rank's own memory; pages of a mapped file belong to
the system, and are there once for all ranks. Linux only: from /proc/self/smaps_rollup.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

ROW = 1024  # float32 numbers of a sample: 4 KiB

parser = argparse.ArgumentParser()
parser.add_argument("--mib", type=int, default=64, help="size of the data set")
parser.add_argument("--how", choices=["read", "share", "map"], default="read")


def own_mib() -> float:
    """Memory of this process that belongs to no file, in MiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    own = [line.split()[1] for line in lines if line.startswith(("Anonymous:", "Swap:"))]
    return sum(map(int, own)) / 1024


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    torch.set_num_threads(1)
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, samples = dist.get_rank(), args.mib * 256

    path = my_folder() / "data.bin"
    if rank == 0:
        torch.ones(samples * ROW).numpy().tofile(path)
    dist.barrier()  # the file is whole

    before = own_mib()
    size = samples * ROW
    data = torch.from_file(str(path), shared=True, size=size).view(-1, ROW)  # mapped, not read
    mine = list(DistributedSampler(range(samples), shuffle=False))
    if args.how == "read":
        data = data.clone()  # the whole data set, in this process
    elif args.how == "share":
        data = data[mine]  # this rank's samples only; the next epoch's are different ones
    total = sum(data[i if args.how == "share" else index].sum() for i, index in enumerate(mine))
    log(how=args.how, own_mib=own_mib() - before, samples=len(mine), total=float(total))
    dist.barrier()
    if rank == 0:
        path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
