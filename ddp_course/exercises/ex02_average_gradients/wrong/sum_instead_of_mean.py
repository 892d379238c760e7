"""sum instead of mean

These are the sums. all_reduce adds up; divide by dist.get_world_size() afterwards, or the step
grows with the number of ranks.
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
