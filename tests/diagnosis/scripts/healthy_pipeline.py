"""Healthy: each rank has a line of its own for what it sends and receives."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

for step in range(4):
    x = torch.ones(4)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, world - 1)
    else:
        dist.recv(x, rank - 1)
        dist.send(x, (rank + 1) % world)
if rank == 0:
    dist.broadcast(torch.tensor([1.0]), 0)
else:
    config = torch.zeros(1)
    dist.broadcast(config, 0)
dist.destroy_process_group()
