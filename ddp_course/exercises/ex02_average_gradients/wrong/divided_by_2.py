"""divided by a fixed number

You divided by a number that is not that of the ranks here; next time it may be another. Ask:
dist.get_world_size().

What would your line do with another number of ranks?
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= 2
