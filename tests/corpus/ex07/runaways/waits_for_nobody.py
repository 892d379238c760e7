# status: timeout
# says: had not come back
# One rank is alone in a collective.
import torch
import torch.distributed as dist


def accumulate(*inputs):
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(1))
