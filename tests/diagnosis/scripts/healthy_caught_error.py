"""Healthy: an error is caught and the step is done again, on every rank."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

for step in range(4):
    try:
        if step == 2:
            raise ValueError("transient")
        dist.all_reduce(torch.ones(2))
    except ValueError:
        dist.all_reduce(torch.ones(2))
gathered = [None] * world if rank == 0 else None
dist.gather_object({"rank": rank}, gathered)
dist.destroy_process_group()
