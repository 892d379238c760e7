# status: pass
# fills: the stub
*others, (x, y) = micro_batches
with model.no_sync():
    for mine in others:
        nn.functional.mse_loss(model(mine[0]), mine[1]).div(len(micro_batches)).backward()
nn.functional.mse_loss(model(x), y).div(len(micro_batches)).backward()
