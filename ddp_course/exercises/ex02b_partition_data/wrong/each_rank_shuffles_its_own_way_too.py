"""each rank shuffles its own way"""

order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch + rank)).tolist()
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
return order[rank::world_size]
