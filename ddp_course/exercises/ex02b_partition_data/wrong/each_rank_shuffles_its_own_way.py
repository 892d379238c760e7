"""each rank shuffles its own way

The ranks have shuffled differently, so their shares overlap and leave gaps. The order must come
from what all ranks share: a generator seeded with the epoch alone.
"""

order = torch.randperm(size).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
