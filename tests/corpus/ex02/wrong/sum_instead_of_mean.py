# status: fail
# mistake: sum instead of mean
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
