"""`isend` returns before anything is sent: a buffer that is used again too early is sent twice.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/05_model_parallelism/wrong_isend.py --buffer reused

Each rank sends four micro-batches to the next, filled with 0, 1, 2 and 3.

    reused    one buffer, overwritten as soon as isend has returned
    waited    one buffer, and wait() for each send before it is overwritten
    own       a buffer for each send, and wait() for all of them at the end

The receiver of `reused` and `own` comes late: not before all sends were begun. That makes the
outcome the same in every run; otherwise it depends on who is quicker, which is worse.

Look for: `received`. Nothing fails, and no rank can see that the numbers are not those meant.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

MICRO_BATCHES = 4

parser = argparse.ArgumentParser()
parser.add_argument("--buffer", choices=["reused", "waited", "own"], default="reused")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    store = next(dist.rendezvous("env://"))[0]  # a table that all ranks can read

    sends: list[dist.Work] = []
    if rank + 1 < world_size:
        buffer = torch.empty(1000, device=place.device)
        for i in range(MICRO_BATCHES):
            if args.buffer == "own":
                buffer = torch.empty(1000, device=place.device)
            buffer.fill_(i)  # stands for: the stage's output for micro-batch i
            send = dist.isend(buffer, dst=rank + 1)
            if args.buffer == "waited":
                send.wait()  # returns when the buffer may be used again
            else:
                sends.append(send)
        store.set(f"rank {rank} has begun", "yes")

    received = []
    if rank > 0:
        if args.buffer != "waited":  # there, the sender cannot go on before we receive
            store.wait([f"rank {rank - 1} has begun"])
        for _ in range(MICRO_BATCHES):
            tensor = torch.empty(1000, device=place.device)
            dist.recv(tensor, src=rank - 1)
            received.append(tensor.mean().item())
    for send in sends:
        send.wait()

    wrong = sum(got != meant for meant, got in enumerate(received))
    log(received=received, wrong=wrong)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
