"""divided twice

Divided by the world size twice. ReduceOp.AVG divides already, and so does a division before
all_reduce.

How often is each gradient divided, counting what the collective does by itself?
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        p.grad /= dist.get_world_size()
