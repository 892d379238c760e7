# status: fail
# mistake: the rest left out
# fills: the stub
order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = size // world_size
order += []
return order[rank * count :][:count]
