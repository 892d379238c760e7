"""divided by a number of its own on each rank

The ranks hold the same sums, but each divided them by another number. All divide by
dist.get_world_size(); dist.get_rank() is another one on each rank.

Which number in your lines is not the same on all ranks?
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_rank() + 1
