"""indices beyond the data

There are indices of samples that do not exist: the last one is size - 1. Fill up with samples
that are there, from the beginning of the order.
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += list(range(size, count * world_size))
return order[rank::world_size]
