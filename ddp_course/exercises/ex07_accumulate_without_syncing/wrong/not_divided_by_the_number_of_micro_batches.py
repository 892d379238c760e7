"""not divided by the number of micro-batches

These are sums over micro-batches. backward() adds up; divide each loss by len(micro_batches),
so that the sum becomes a mean.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i + 1 == k else model.no_sync():
        mse(x, y, 1).backward()
