"""Only rank 0 may print: and the traceback of the rank that failed is gone.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/06_torchrun/wrong_output_kept.py --keep rank_0

    all              every rank prints
    rank_0           the others are silenced, "so that the log stays readable"
    rank_0_no_file   the same, and no error file: a script without torchrun's @record

The last rank meets a broken sample in step 3. Look for: its number, 4711, in the output. What rank
0 says is about a closed connection: true, and no help.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--keep", choices=["all", "rank_0", "rank_0_no_file"], default="all",
                    help="whose output is kept")  # fmt: skip


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if args.keep != "all" and rank > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the end
    if args.keep == "rank_0_no_file":
        os.environ.pop("TORCHELASTIC_ERROR_FILE", None)  # where @record would write

    for step in range(5):
        if step == 3 and rank == world_size - 1:
            raise ValueError("sample 4711 is broken")
        total = torch.ones(1, device=place.device)
        dist.all_reduce(total)
        log(step=step, total=int(total.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
