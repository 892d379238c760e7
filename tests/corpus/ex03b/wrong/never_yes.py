# status: fail
# mistake: never yes
# fills: the stub
flag = torch.tensor(float(wish), device=device)
return dist.all_reduce(flag, op=dist.ReduceOp.MAX) is not None
