"""the short window is not divided by its own length

The window of 4 is right, the one of 2 is not. Is a 4 written in your lines? Ask:
len(micro_batches).

Where does the number in your division come from?
"""

k = len(micro_batches)
def mse(x, y, parts):
    return nn.functional.mse_loss(model(x), y) / parts
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i + 1 == k else model.no_sync():
        mse(x, y, 4).backward()
