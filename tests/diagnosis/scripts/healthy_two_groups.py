"""Healthy: two groups make different numbers of calls."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = groups[rank // 2]
for step in range(3 if rank < 2 else 5):
    dist.all_reduce(torch.ones(3), group=mine)
dist.reduce(torch.ones(1), dst=0 if rank < 2 else 2, group=mine)
dist.barrier()
dist.destroy_process_group()
