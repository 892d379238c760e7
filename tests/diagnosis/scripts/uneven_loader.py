"""A training set split by hand: the last rank has a batch less."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
data = torch.randn(70, 4)
mine = data[rank * 24 : (rank + 1) * 24]  # 24, 24 and 22
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = torch.zeros(1)
    for batch in mine.split(2):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch} loss {total.item():.3f}", flush=True)
dist.destroy_process_group()
