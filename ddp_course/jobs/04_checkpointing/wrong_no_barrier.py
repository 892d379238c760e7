"""Rank 0 saves, all ranks load: what do the others find if nobody waits?

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/wrong_no_barrier.py

Three times: rank 0 writes version 1, 2, 3 (slowly, as a large model is), then every rank loads.
Look for: `found`, the version that this rank got, and `wrong`, on how many ranks it was another
one. The first time the file is not there and there is an error; afterwards the old file is, and
there is none. `--barrier` is the cure.
"""

import argparse
import time

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--barrier", action="store_true", help="wait for rank 0 before loading")
parser.add_argument("--save-ms", type=float, default=100.0, help="how long rank 0 takes to save")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank = dist.get_rank()
    path, draft = my_folder() / "versions.pt", my_folder() / "versions.draft"
    if rank == 0:
        path.unlink(missing_ok=True)  # what an earlier run in a shell may have left

    for version in (1, 2, 3):
        dist.barrier()
        if rank == 0:
            time.sleep(args.save_ms / 1000)
            torch.save({"version": version}, draft)
            draft.replace(path)
        if args.barrier:
            dist.barrier()  # nobody passes before rank 0 has saved
        try:
            found, error = torch.load(path, map_location="cpu")["version"], ""
        except FileNotFoundError as problem:
            found, error = 0, f"{type(problem).__name__}: {problem.strerror}"
        wrong = torch.tensor(int(found != version), device=place.device)
        dist.all_reduce(wrong)
        log(step=version, found=found, error=error, wrong=wrong.item())

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
