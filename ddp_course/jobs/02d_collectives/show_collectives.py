"""Five collectives on three numbers for each rank: who has what afterwards?

    python -m torch.distributed.run --standalone --nproc-per-node=3 \
        ddp_course/jobs/02d_collectives/show_collectives.py

Rank 0 begins with 1 2 3 …, rank 1 with 10 20 30 …, rank 2 with 100 200 300 …: as many numbers as
there are ranks. A sum then shows in its digits who is in it.

Look for: which collectives give every rank the same, and which give each rank something else.
"""

import torch
import torch.distributed as dist

from ddp_course.rank.place import my_place
from ddp_course.rank.report import log, run_rank


def main() -> None:
    place = my_place()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own = torch.arange(1, world_size + 1, device=place.device) * 10**rank  # shape (world_size,)
    pieces = list(own.split(1))  # one piece for each rank
    log(own=own)

    everything = own.clone()
    dist.broadcast(everything, src=0)
    log(broadcast=everything)

    total = own.clone()
    dist.all_reduce(total)
    log(all_reduce=total)

    my_sum = torch.empty_like(pieces[0])
    dist.reduce_scatter(my_sum, pieces)  # the sum of everybody's piece number `rank`
    log(reduce_scatter=my_sum)

    gathered = [torch.empty_like(my_sum) for _ in range(world_size)]
    dist.all_gather(gathered, pieces[rank])  # one piece from each rank, in their order
    log(all_gather=torch.cat(gathered))

    received = torch.empty_like(own)
    dist.all_to_all_single(received, own)  # my piece number r goes to rank r
    log(all_to_all=received)

    dist.all_gather(gathered, my_sum)  # the sums that reduce_scatter left, one on each rank
    log(scattered_then_gathered=torch.cat(gathered))
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
