# status: fail
# mistake: one rank decides
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.broadcast(flag, src=dist.get_world_size() - 1)
return bool(flag)
