"""one rank decides

Every rank follows the wish of one: that is broadcast. It keeps the ranks together, but ignores
the other ranks' wishes.
"""

flag = torch.tensor(float(wish), device=device)
dist.broadcast(flag, src=dist.get_world_size() - 1)
return bool(flag)
