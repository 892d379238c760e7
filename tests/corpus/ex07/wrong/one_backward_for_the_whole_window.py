# status: fail
# mistake: one backward for the whole window
# fills: the stub
x, y = (torch.cat(parts) for parts in zip(*micro_batches))
nn.functional.mse_loss(model(x), y).backward()
