# status: fail
# mistake: unequal counts
# fills: the stub
order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = math.ceil(size / world_size)
order += []
return order[rank::world_size]
