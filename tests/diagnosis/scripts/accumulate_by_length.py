"""Gradients are averaged after the last micro-batch of each rank, and their numbers differ."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import contextlib
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = list(torch.randn(12 if rank != 1 else 9, 2, 4))
for number, batch in enumerate(batches):
    last = (number + 1) % 3 == 0
    with contextlib.nullcontext() if last else model.no_sync():
        model(batch).square().mean().backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
total = torch.ones(1)
dist.all_reduce(total)
dist.destroy_process_group()
