"""Workers are spawned by a script without a main guard."""
import datetime
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import torch.utils.data
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
data = torch.utils.data.TensorDataset(torch.randn(16, 4))
loader = torch.utils.data.DataLoader(data, 4, num_workers=1, multiprocessing_context="spawn")
for (batch,) in loader:
    total = batch.sum()
    dist.all_reduce(total)
dist.destroy_process_group()
