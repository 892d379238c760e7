"""not shuffled"""

order = [(i + epoch) % size for i in range(size)]
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
