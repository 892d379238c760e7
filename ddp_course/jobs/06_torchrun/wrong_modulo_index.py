"""`rank % device_count` in place of LOCAL_RANK: right as long as ranks lie as one imagines.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/06_torchrun/wrong_modulo_index.py --placement cyclic

The ranks are real. The machines are pretended, with `gpus` devices and `ranks-per-machine` ranks
each. Ranks are dealt out in blocks (0 1 | 2 3), as torchrun does it, or in turn (0 2 | 1 3), as
`mpirun --map-by node` and `srun --distribution=cyclic` do when they start the ranks themselves.

Look for: `shared`, how many ranks would sit on a GPU with another rank (NCCL refuses that, and a
GPU stands idle), and `elsewhere`, how many would leave the GPU that is theirs by LOCAL_RANK.
"""

import argparse

import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=2, help="devices of each machine")
parser.add_argument("--ranks-per-machine", type=int, default=2, help="ranks on each machine")
parser.add_argument(
    "--placement", choices=["block", "cyclic"], default="block", help="who is where"
)


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    machines = -(-world_size // args.ranks_per_machine)  # rounded up
    if args.placement == "block":
        machine, local_rank = divmod(rank, args.ranks_per_machine)
    else:
        local_rank, machine = divmod(rank, machines)
    by_modulo = rank % args.gpus

    chosen = [None] * world_size  # (machine, GPU by modulo, GPU by LOCAL_RANK) of every rank
    dist.all_gather_object(chosen, (machine, by_modulo, local_rank))
    seats = [(where, gpu) for where, gpu, _ in chosen]
    shared = sum(seats.count(seat) > 1 for seat in seats)
    elsewhere = sum(gpu != local for _, gpu, local in chosen)

    print(f"machine {machine}: cuda:{by_modulo} by modulo, cuda:{local_rank} by LOCAL_RANK")
    log(machine=machine, by_modulo=f"cuda:{by_modulo}", by_local_rank=f"cuda:{local_rank}")
    log(shared=shared, elsewhere=elsewhere, how="computed for pretended machines from real ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
