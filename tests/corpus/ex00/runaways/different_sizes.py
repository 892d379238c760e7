# status: error timeout
# says:
import torch
import torch.distributed as dist


def sum_over_ranks(number):
    dist.all_reduce(torch.ones(1000 * (dist.get_rank() + 1)))
    return number
