# status: error
# says: memory
import torch


def sum_over_ranks(number):
    return torch.ones(2**31) + number[0]
