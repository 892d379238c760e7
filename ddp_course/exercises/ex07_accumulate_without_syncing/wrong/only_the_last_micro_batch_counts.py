"""only the last micro-batch counts

Only the last micro-batch is left. Do not empty the gradients between the micro-batches, and
call backward() for each of them.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    model.zero_grad()
    with nullcontext() if i + 1 == k else model.no_sync():
        mse(x, y, k).backward()
