"""One rank changes its gradients after they were averaged."""
import datetime, os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
lr = torch.tensor([0.1])
for step in range(5):
    opt.zero_grad(); model(torch.randn(8, 4)).mean().backward()
    if rank == 1 and step == 2:
        for p in model.parameters(): p.grad.zero_()
    opt.step()
dist.destroy_process_group()
