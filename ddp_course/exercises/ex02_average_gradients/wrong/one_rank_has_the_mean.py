"""one rank has the mean

Only one rank has the mean: that is reduce, which delivers to one rank. all_reduce delivers to
all.
"""

for p in model.parameters():
    if p.grad is not None:
        dist.reduce(p.grad, dst=0)
        p.grad /= dist.get_world_size()
