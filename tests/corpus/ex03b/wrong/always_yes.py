# status: fail
# mistake: always yes
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
return flag is not None
