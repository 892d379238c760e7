"""more than needed

All ranks have equally many, but where the data divide evenly they have one more than that
takes. size // world_size + 1 is rounded up too far: math.ceil(size / world_size).

How many should each of 3 ranks have of 9 samples, and what do your lines say?
"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = size // world_size + 1
return (2 * order)[: count * world_size][rank::world_size]
