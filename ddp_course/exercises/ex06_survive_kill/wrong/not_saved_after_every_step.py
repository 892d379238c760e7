"""not saved after every step

The weights are right, but the last start did not begin right after the last finished step.
Save after every step, and begin with the next.

A kill comes right after a step. Is that step in your file?
"""

done, draft = 0, path.with_suffix(".draft")
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["done"]
for step in range(done, len(batches)):
    take_step(model, optimizer, *batches[step])
    if dist.get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if step % 2:
            torch.save({**states, "done": step + 1}, draft)
            os.replace(draft, path)
