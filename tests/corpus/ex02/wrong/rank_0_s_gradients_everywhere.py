# status: fail
# mistake: rank 0's gradients everywhere
# fills: the stub
for p in model.parameters():
    if p.grad is not None:
        dist.broadcast(p.grad, src=0)
