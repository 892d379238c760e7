# status: fail
# mistake: no answer returned
# fills: the stub
flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
