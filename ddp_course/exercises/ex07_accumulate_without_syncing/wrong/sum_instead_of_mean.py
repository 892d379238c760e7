"""sum instead of mean

These are the gradients of the summed squared error. mse_loss takes the mean over a micro-batch
if you leave `reduction` out.
"""

for i, (x, y) in enumerate(micro_batches):
    last = i + 1 == len(micro_batches)
    with nullcontext() if last else model.no_sync():
        loss = nn.functional.mse_loss(model(x), y, reduction="sum")
        (loss / len(micro_batches)).backward()
