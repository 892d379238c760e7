# status: fail
# mistake: multiplied instead of divided
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad *= dist.get_world_size()
