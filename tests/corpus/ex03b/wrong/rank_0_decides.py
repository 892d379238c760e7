# status: fail
# mistake: rank 0 decides
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.broadcast(flag, src=0)
return bool(flag)
