"""averaged by hand

The gradient is right, but DDP never averaged: you did, without its buckets and without overlap.
Leave the last micro-batch outside no_sync, and it will.

What averages, and how often, if no backward is inside no_sync?
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with model.no_sync():
        mse(x, y, k).backward()
for p in model.parameters():
    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
