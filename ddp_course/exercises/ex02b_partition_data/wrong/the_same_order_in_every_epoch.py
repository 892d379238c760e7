"""the same order in every epoch

Every epoch has the same order: the seed does not depend on `epoch`.
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(0)).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
