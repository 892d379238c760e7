# status: fail
# mistake: one rank has the mean
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.reduce(p.grad, dst=0)
        p.grad /= dist.get_world_size()
