# status: fail
# mistake: divided but not reduced
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        p.grad /= dist.get_world_size()
