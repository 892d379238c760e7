# status: fail
# mistake: more than needed
# fills: the stub
order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()
count = size // world_size + 1
return (2 * order)[: count * world_size][rank::world_size]
