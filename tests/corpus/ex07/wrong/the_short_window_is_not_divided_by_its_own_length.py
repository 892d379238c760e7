# status: fail
# mistake: the short window is not divided by its own length
# fills: the stub
k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i + 1 == k else model.no_sync():
        mse(x, y, 4).backward()
