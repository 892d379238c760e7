# status: fail
# mistake: weights changed
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= 3
        dist.all_reduce(p.data)
