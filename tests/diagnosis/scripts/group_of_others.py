"""Rank 2 reduces over the group of ranks 0 and 1."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
for step in range(4):
    which = 0 if rank < 2 or (rank == 2 and step == 2) else 1
    total = torch.ones(1)
    dist.all_reduce(total, group=groups[which])
dist.barrier()
dist.destroy_process_group()
