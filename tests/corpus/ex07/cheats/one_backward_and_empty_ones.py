# status: fail
# says: What each rank had
# earned: 3
# mistake: one backward for the whole window
# fills: the stub
with model.no_sync():
    for _ in micro_batches[1:]:
        (0 * model.module.bias).sum().backward()
x = torch.cat([a for a, _ in micro_batches])
y = torch.cat([b for _, b in micro_batches])
nn.functional.mse_loss(model(x), y).backward()
