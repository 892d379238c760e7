# status: fail
# mistake: the same share on every rank
# fills: the stub
order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[:count]
