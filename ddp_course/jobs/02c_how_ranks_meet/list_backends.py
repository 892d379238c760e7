"""Which backends can carry this machine's collectives? Each is asked for, then really used.

    python -m torch.distributed.run --standalone --nproc-per-node=2 \
        ddp_course/jobs/02c_how_ranks_meet/list_backends.py

Look for: `built_in` (this build of PyTorch contains it) is not `works` (an all_reduce went
through). NCCL is compiled into PyTorch's CUDA builds, but does nothing without a GPU per rank.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

BACKENDS = {
    "gloo": "runs on CPUs, everywhere",
    "nccl": "NVIDIA's library: the fast way between GPUs, and only between GPUs",
    "mpi": "uses the cluster's own MPI library; PyTorch must be compiled against it",
}

parser = argparse.ArgumentParser()


def main() -> None:
    parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)

    for backend, what_for in BACKENDS.items():
        try:
            group = dist.new_group(backend=backend)  # every rank must ask, in the same order
            number = torch.ones(1, device=place.device)
            dist.all_reduce(number, group=group)
            works = number.item() == dist.get_world_size()
            answer = f"all_reduce over {dist.get_world_size()} rank(s) gave {number.item():.0f}"
        except (RuntimeError, ValueError) as error:
            works, answer = False, str(error).splitlines()[0]
        built_in = dist.is_backend_available(backend)
        print(f"{backend}: built in {built_in}, works {works}: {answer}")
        log(name=backend, built_in=built_in, works=works, answer=answer, what_for=what_for)

    log(chosen=place.backend, why=place.why)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
