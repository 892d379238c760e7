"""A rank's epoch ends by an error that it catches."""
import datetime, os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for step in range(6):
        if rank == 2 and step == 3:
            raise OSError("broken shard 7")
        opt.zero_grad(); model(torch.randn(8, 4)).mean().backward(); opt.step()
for epoch in range(2):
    try:
        train()
    except OSError as error:
        print("skipping:", error)
    t = torch.ones(5)
    dist.all_reduce(t)
dist.destroy_process_group()
