# status: fail
# mistake: each rank shuffles its own way
# fills: the stub
order = torch.randperm(size).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
