"""divided by the world size, too

The gradients are too small by the world size. DDP already divides by the number of ranks; you
divide by the number of micro-batches only.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i + 1 == k else model.no_sync():
        mse(x, y, k * dist.get_world_size()).backward()
