"""divided but not reduced

Each rank divided its own gradient, but nothing was added up. Which collective sums over ranks
and leaves the result on all of them?
"""

for p in model.parameters():
    if p.grad is not None:
        p.grad /= dist.get_world_size()
