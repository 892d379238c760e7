# status: fail
# mistake: one rank knows
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.reduce(flag, dst=0, op=dist.ReduceOp.MAX)
return bool(flag)
