"""Healthy: rank 0 evaluates the bare model, keeps an average of its weights, and logs."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = torch.optim.swa_utils.AveragedModel(model.module) if rank == 0 else None
for epoch in range(3):
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            average.update_parameters(model.module)
    dist.barrier()
    if rank == 0:
        with torch.no_grad():
            print("validation", model.module.eval()(torch.randn(8, 4)).mean().item(), flush=True)
        model.train()
dist.destroy_process_group()
