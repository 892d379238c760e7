# status: fail
# mistake: the majority decides
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag, op=dist.ReduceOp.AVG)
return bool(flag > 0.5)
