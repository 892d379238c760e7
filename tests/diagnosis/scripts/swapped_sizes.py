"""Metrics are reduced in the order of a set, which one rank has otherwise."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

metrics = {"loss": torch.ones(1), "hits": torch.ones(10), "seen": torch.ones(3)}
for step in range(4):
    names = list(metrics)
    if rank == 1 and step == 2:
        names[0], names[1] = names[1], names[0]
    for name in names:
        dist.all_reduce(metrics[name])
dist.barrier()
dist.destroy_process_group()
