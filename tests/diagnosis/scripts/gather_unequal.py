"""Predictions of unequal number are gathered."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

mine = torch.randn(7 + rank)
parts = [torch.zeros_like(mine) for _ in range(world)]
dist.all_gather(parts, mine)
print(rank, [len(part) for part in parts], flush=True)
dist.barrier()
dist.destroy_process_group()
