"""the rest left out

The samples that are left when the data are shared out equally are on no rank. Round the share
up, not down, and fill up from the beginning.
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = size // world_size
order += []
return order[rank * count :][:count]
