"""every micro-batch synchronised

The gradient is right, but each micro-batch was averaged. Put all but the last inside `with
model.no_sync():`.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    mse(x, y, k).backward()
