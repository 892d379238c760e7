"""the same share on every rank

All ranks have the same samples, and nobody has the others. Where does `rank` come into your
lines?
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[:count]
