"""A rank number taken for a device number: right on one machine, wrong from the second on.

    python -m torch.distributed.run --standalone --nproc-per-node=4 \
        ddp_course/jobs/00_start_here/wrong_device_index.py --ranks-per-machine 2

The ranks are real. The machines are pretended: the ranks are dealt out as torchrun deals them, the
first `ranks-per-machine` to machine 0, the next to machine 1, with one GPU for each.

Look for: `missing`, how many ranks ask for a GPU that their machine does not have, if they say
`cuda:{RANK}`. With all ranks on one machine it is 0, so the mistake waits for your first cluster.
"""

import argparse

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--ranks-per-machine", type=int, default=2, help="ranks, and GPUs, on each")


def main() -> None:
    args = parser.parse_args()
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank = dist.get_rank()

    machine = rank // args.ranks_per_machine
    local_rank = rank - machine * args.ranks_per_machine  # what LOCAL_RANK would be there
    gpus = args.ranks_per_machine  # cuda:0 … cuda:{gpus - 1} exist on each machine

    missing = torch.tensor([int(rank >= gpus)], device=place.device)  # 1 if cuda:{rank} is absent
    dist.all_reduce(missing)  # the count over all ranks
    missing = int(missing.item())

    verdict = "does not exist there" if rank >= gpus else "exists"
    print(f"machine {machine}: cuda:{rank} (by RANK) {verdict}; right is cuda:{local_rank}")
    log(machine=machine, by_rank=f"cuda:{rank}", by_local_rank=f"cuda:{local_rank}")
    log(missing=missing, how="computed for pretended machines from the real ranks of this run")

    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
