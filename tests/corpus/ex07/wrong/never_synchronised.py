# status: fail
# mistake: never synchronised
# fills: the stub
k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with model.no_sync():
        mse(x, y, k).backward()
