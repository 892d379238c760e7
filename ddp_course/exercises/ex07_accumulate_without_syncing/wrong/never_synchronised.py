"""never synchronised

Every rank has the gradient of its own data only: all micro-batches were inside no_sync, or went
past DDP by model.module. Leave the last one outside.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with model.no_sync():
        mse(x, y, k).backward()
