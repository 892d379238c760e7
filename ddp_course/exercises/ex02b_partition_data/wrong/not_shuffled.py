"""not shuffled

The indices follow each other at one distance. Shuffle them: torch.randperm(size, generator=…).
"""

order = list(range(size))
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
