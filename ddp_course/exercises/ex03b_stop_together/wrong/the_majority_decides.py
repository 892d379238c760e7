"""the majority decides

Your ranks stop when most of them want to. One wish is enough: any sum above 0, or the maximum.
"""

flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag, op=dist.ReduceOp.AVG)
return bool(flag > 0.5)
