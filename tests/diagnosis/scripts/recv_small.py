"""A stage receives into a tensor that is smaller than what the stage before sends."""
import datetime
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
if dist.get_rank() == 0:
    dist.send(torch.randn(4, 16), 1)
else:
    activations = torch.empty(4, 8)
    dist.recv(activations, 0)
dist.barrier()
dist.destroy_process_group()
