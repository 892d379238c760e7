"""a gradient for the frozen parameter

The frozen parameter had no gradient, and now it has one. An optimizer takes zeros for a
gradient, and moves by momentum or weight decay: leave None as it is.

What does an optimizer do with a gradient of zeros, and what with None?
"""

for p in model.parameters():
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()
