# status: fail
# mistake: divided by a fixed number
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= 2
