# status: fail
# mistake: every micro-batch synchronised
# fills: the stub
k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    mse(x, y, k).backward()
