# status: fail
# mistake: some parameters only
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        return
