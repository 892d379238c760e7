"""another order when asked again

The ranks agree, but the same epoch comes in another order when it is asked for again. Then no
run can be resumed: let the epoch, and nothing else, be the seed.
"""

order = torch.randperm(size)
dist.broadcast(order, src=0)
order = order.tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
