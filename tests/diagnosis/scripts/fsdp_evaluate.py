"""Rank 0 alone evaluates a sharded model: its gathering meets that of the others' next step."""
import datetime
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank = dist.get_rank()

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
if rank == 0:
    with torch.no_grad():
        print(model(torch.randn(16, 8)).mean())
for step in range(3):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
