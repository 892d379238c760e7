"""one backward for the whole window

The gradient is right, but the micro-batches did not go through the model one by one, forward
and backward: all were held in memory at once, which accumulation is there to avoid.

How many micro-batches must be in memory at once in your lines?
"""

x, y = (torch.cat(parts) for parts in zip(*micro_batches))
nn.functional.mse_loss(model(x), y).backward()
