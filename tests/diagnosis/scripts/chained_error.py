"""The first of two errors tells the reason; the second one's text holds colons."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

class ConfigError(Exception):
    pass
def load(name):
    table = {"small": 8}
    try:
        return table[name]
    except KeyError:
        raise ConfigError(f"config: model: no size: {name}")
for step in range(3):
    width = load("small" if step < 2 or rank == 0 else "smal")
    dist.all_reduce(torch.ones(width))
dist.destroy_process_group()
