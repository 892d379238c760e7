"""Only its members make the group."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

if rank < 2:
    pair = dist.new_group([0, 1])
everyone = dist.new_group(list(range(world)))
dist.all_reduce(torch.ones(1), group=everyone)
dist.destroy_process_group()
