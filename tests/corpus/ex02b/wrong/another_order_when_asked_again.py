# status: fail
# mistake: another order when asked again
# fills: the stub
order = torch.randperm(size)
dist.broadcast(order, src=0)
order = order.tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
