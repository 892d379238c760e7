# status: fail
# mistake: gradients unchanged
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        mean = p.grad.clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
