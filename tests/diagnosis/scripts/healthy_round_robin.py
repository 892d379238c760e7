"""Healthy: the ranks take turns in two branches."""
import datetime, os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank, world = dist.get_rank(), dist.get_world_size()

for step in range(4):
    x = torch.ones(2) * rank
    if step % world == rank:
        dist.broadcast(x, src=rank)
    else:
        dist.broadcast(x, src=step % world)
for step in range(4):
    if (step + rank) % 2 == 0:
        dist.all_reduce(torch.ones(1))
    else:
        dist.all_reduce(torch.zeros(1))
dist.destroy_process_group()
