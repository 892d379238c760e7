"""rank 0's gradients everywhere

Every rank has rank 0's gradients: that is broadcast. The ranks now agree, but all data except
rank 0's was thrown away.
"""

for p in model.parameters():
    if p.grad is not None:
        dist.broadcast(p.grad, src=0)
