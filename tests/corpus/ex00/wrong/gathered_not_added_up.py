# status: fail
# mistake: gathered, not added up
# fills: the stub
parts = [torch.empty_like(number) for _ in range(dist.get_world_size())]
dist.all_gather(parts, number)
return torch.stack(parts)
