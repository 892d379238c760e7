# status: fail
# mistake: the last one left out of the average
# fills: the stub
for i, (x, y) in enumerate(micro_batches):
    last = i + 1 == len(micro_batches)
    with model.no_sync() if last else nullcontext():
        loss = nn.functional.mse_loss(model(x), y)
        (loss / len(micro_batches)).backward()
