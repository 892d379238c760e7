"""Healthy: rank 0 saves, all wait and load."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

path = f"save-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
for epoch in range(2):
    for step in range(3):
        model(torch.randn(8, 4)).square().mean().backward()
    if rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()
    model.module.load_state_dict(torch.load(path))
dist.barrier()
if rank == 0:
    os.remove(path)
dist.destroy_process_group()
