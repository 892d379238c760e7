"""the last one left out of the average

All micro-batches were averaged but the last, which only this rank has seen: it was inside
no_sync, and it is the one that belongs outside.

Which micro-batch must be outside no_sync, so that what all have added up is averaged?
"""

for i, (x, y) in enumerate(micro_batches):
    last = i + 1 == len(micro_batches)
    with model.no_sync() if last else nullcontext():
        loss = nn.functional.mse_loss(model(x), y)
        (loss / len(micro_batches)).backward()
