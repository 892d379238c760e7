# status: fail
# mistake: forward outside no_sync
# fills: the stub
k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    loss = mse(x, y, k)
    with nullcontext() if i + 1 == k else model.no_sync():
        loss.backward()
