"""Killed while it saves, at twelve moments: what does the next load find?

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/04_checkpointing/interrupt_save.py

Version 1 of a checkpoint is there. A child process saves version 2 and is killed (SIGKILL) after
0/10, 1/10, … 10/10 of its bytes, or when all is done. Look for: how many moments leave the `old`
version, the `new` one or a `broken` file, written in place, and written beside it and renamed.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, my_folder, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--moments", type=int, default=12, help="how often it is killed")


class MortalFile:
    """A file whose process dies, without a word, as soon as it has written so many bytes."""

    def __init__(self, file, bytes_left: int) -> None:
        self.file, self.bytes_left = file, bytes_left

    def write(self, data) -> int:
        if len(data) > self.bytes_left:
            self.file.write(data[: self.bytes_left])
            self.bytes_left = 0
            self.flush()
        self.bytes_left -= len(data)
        return self.file.write(data)

    def flush(self) -> None:  # also torch.save's last call
        self.file.flush()
        if self.bytes_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def save(checkpoint: dict, path: Path, way: str, bytes_left: int = 1 << 60) -> None:
    target = path.with_suffix(".draft") if way == "beside" else path
    with open(target, "wb") as file:
        torch.save(checkpoint, MortalFile(file, bytes_left))
        os.fsync(file.fileno())
    if way == "beside":
        os.replace(target, path)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    path = my_folder() / f"interrupted-{rank}.pt"
    versions = [{"version": v, "weights": torch.full((1 << 14,), v)} for v in (1, 2)]
    save(versions[0], path, "in place")
    first = path.read_bytes()

    found = {"in place": [], "beside": []}
    for way in found:
        for moment in range(rank, args.moments, world_size):  # the ranks share them
            part = moment / (args.moments - 2)  # of the bytes; above 1: of more than there are
            path.write_bytes(first)
            child = os.fork()  # before the process group: its threads would not be copied
            if child == 0:
                save(versions[1], path, way, int(part * len(first)))
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            try:
                found[way].append(torch.load(path, map_location="cpu")["version"])
            except Exception as error:  # which one depends on the moment
                found[way].append(type(error).__name__)

    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    for way, mine in found.items():
        old, new = mine.count(1), mine.count(2)
        total = torch.tensor([old, new, len(mine) - old - new], device=place.device)
        dist.all_reduce(total)
        old, new, broken = total.tolist()
        log(way=way, old=old, new=new, broken=broken, errors=sorted(set(mine) - {1, 2}))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
