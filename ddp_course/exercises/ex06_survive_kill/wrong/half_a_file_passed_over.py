"""half a file passed over

The last start found half a file and did all the work again. Avoid that: save under
another name, then put the whole file in place with os.replace.

What is left of the last good checkpoint while you write the next one?
"""

done = 0
try:
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["done"]
except Exception:
    pass
for step in range(done, len(batches)):
    take_step(model, optimizer, *batches[step])
    if dist.get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "done": step + 1}, path)
