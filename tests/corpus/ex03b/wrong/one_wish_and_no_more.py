# status: fail
# mistake: one wish and no more
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
return flag.item() == 1
