"""forward outside no_sync

The backward was inside no_sync, but DDP averaged anyway: the forward decides. Put
model(x) inside, too.

In which of your lines does DDP decide whether the next backward is averaged?
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    loss = mse(x, y, k)
    with nullcontext() if i + 1 == k else model.no_sync():
        loss.backward()
