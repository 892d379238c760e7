"""The other ranks load a checkpoint that rank 0 has not begun to write."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import time
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, world = dist.get_rank(), dist.get_world_size()

path = f"load-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
torch.manual_seed(0)
model = nn.Linear(4, 1)
if rank == 0:
    time.sleep(1)  # the last touches
    torch.save(model.state_dict(), path)
model.load_state_dict(torch.load(path))
dist.barrier()
dist.destroy_process_group()
