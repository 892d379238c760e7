"""unequal counts

Every sample is there, but some ranks have one more than others. Make the order long enough
before you share it out: its length must divide by world_size.
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += []
return order[rank::world_size]
