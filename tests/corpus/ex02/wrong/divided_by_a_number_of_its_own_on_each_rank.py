# status: fail
# mistake: divided by a number of its own on each rank
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_rank() + 1
