"""synchronised on the first

The first micro-batch was averaged, what came after was not. DDP averages what is in .grad at
that moment: synchronise on the last one.
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i == 0 else model.no_sync():
        mse(x, y, k).backward()
