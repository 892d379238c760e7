"""In the second epoch rank 0 evaluates the wrapped model alone."""
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
def evaluate():
    model.eval()
    with torch.no_grad():
        return model(torch.randn(8, 4)).mean().item()
for epoch in range(3):
    model.train()
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    if rank == 0 and epoch > 0:
        print("validation", evaluate(), flush=True)
dist.barrier()
dist.destroy_process_group()
