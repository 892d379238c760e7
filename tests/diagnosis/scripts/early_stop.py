"""Each rank decides by its own loss when to stop."""
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
def train_epoch(epoch):
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()
for epoch in range(8):
    loss = train_epoch(epoch)
    if epoch == 3 and rank == 1:  # loss > best, on this rank's data
        break
print(f"rank {rank} ends", flush=True)
dist.barrier()
dist.destroy_process_group()
