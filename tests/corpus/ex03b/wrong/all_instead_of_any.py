# status: fail
# mistake: all instead of any
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag, op=dist.ReduceOp.MIN)
return bool(flag)
