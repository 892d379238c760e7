# status: fail
# mistake: indices beyond the data
# fills: the stub
order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += list(range(size, count * world_size))
return order[rank::world_size]
