"""some parameters only

Some gradients are averaged and others are not. Does your loop reach every parameter, or does it
return after the first?

When your function returns, which parameters has its loop seen?
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        return
