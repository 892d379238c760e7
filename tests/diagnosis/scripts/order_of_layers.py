"""Layers are registered in another order on one rank."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("one", "two") if rank == 0 else ("two", "one"):
            self.add_module(name, nn.Linear(4, 4, bias=False))
    def forward(self, x):
        return self.two(self.one(x))
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
