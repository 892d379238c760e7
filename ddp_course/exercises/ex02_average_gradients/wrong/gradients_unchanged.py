"""gradients unchanged

Every rank still has its own gradients. all_reduce works in place: give it parameter.grad
itself, and if you work on a copy, write the result back.
"""

for p in model.parameters():
    if p.grad is not None:
        mean = p.grad.clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
