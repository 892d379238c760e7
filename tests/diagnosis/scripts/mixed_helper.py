"""Loss and accuracy are averaged by one helper, in opposite order on rank 1."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

def mean_over_ranks(value):
    total = torch.tensor([float(value)])
    dist.all_reduce(total)
    return total.item() / world
def show(name, value):
    print(rank, name, mean_over_ranks(value), flush=True)
if rank == 1:
    show("accuracy", 0.5)
    show("loss", 2.0)
else:
    show("loss", 2.0)
    show("accuracy", 0.5)
dist.destroy_process_group()
