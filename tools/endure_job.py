"""The job of `make endure`: rank 1 fails in the way and at the moment that it is told.

torchrun --standalone --nproc-per-node 2 tools/endure_job.py --do raise --after 0.1
"""

import argparse
import ctypes
import os
import signal
import sys
import time


def hang(gloo: bool) -> None:
    """Wait for a rank that will not come, in Gloo or in Python."""
    if gloo:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))
    while True:
        time.sleep(60)


def leave_a_daemon() -> None:
    """A grandchild in a session of its own that ignores the polite signals."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(60)


def fail(do: str, gloo: bool) -> None:
    if do == "raise":
        raise ValueError("boom")
    if do == "exit 3":
        sys.exit(3)
    if do == "leave early":
        os._exit(0)
    if do == "segfault":
        ctypes.string_at(0)
    if do == "abort":
        os.abort()
    if do == "kill -9":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "stand still":
        os.kill(os.getpid(), signal.SIGSTOP)
    hang(gloo)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--do", default="end")
    parser.add_argument("--after", type=float, default=0)
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--daemon", action="store_true")
    knobs = parser.parse_args()
    rank = int(os.environ["RANK"])
    if knobs.gloo:
        import torch.distributed as dist

        dist.init_process_group("gloo")
    if knobs.daemon:
        leave_a_daemon()
    print("alive", rank, flush=True)
    time.sleep(knobs.after)
    again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    if knobs.do == "end" or (knobs.do == "restart" and again):
        if knobs.gloo:
            dist.barrier()  # rank 0 holds the store; without it the others cannot begin
        os._exit(0)
    if rank == 1:
        fail({"restart": "kill -9"}.get(knobs.do, knobs.do), knobs.gloo)
    hang(knobs.gloo)


if __name__ == "__main__":
    main()
