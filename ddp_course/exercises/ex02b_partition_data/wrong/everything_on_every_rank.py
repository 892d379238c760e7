"""everything on every rank

Every rank has all samples, so each is learned from as often as there are ranks. Give this rank
its share only: order[rank::world_size].
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += []
return order
