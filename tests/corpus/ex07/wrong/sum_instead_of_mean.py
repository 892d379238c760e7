# status: fail
# mistake: sum instead of mean
# fills: the stub
for i, (x, y) in enumerate(micro_batches):
    last = i + 1 == len(micro_batches)
    with nullcontext() if last else model.no_sync():
        loss = nn.functional.mse_loss(model(x), y, reduction="sum")
        (loss / len(micro_batches)).backward()
