# status: pass
# fills: the stub
flag = torch.tensor([wish], dtype=torch.int64)
dist.all_reduce(flag)
return (flag.numpy() > 0)[0]
