# status: fail
# mistake: a gradient for the frozen parameter
# fills: the stub
for p in model.parameters():
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()
