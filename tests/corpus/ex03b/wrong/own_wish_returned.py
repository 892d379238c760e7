# status: fail
# mistake: own wish returned
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag.clone())
return bool(flag)
