"""An error whose `finally` waits for the other ranks before anything is printed."""
import datetime
import torch
import torch.distributed as dist

def load(step):
    return ["a", "b"][step]

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
try:
    for step in range(4):
        if dist.get_rank() == 1:
            load(step)
        dist.all_reduce(torch.ones(1))
finally:
    dist.barrier()
