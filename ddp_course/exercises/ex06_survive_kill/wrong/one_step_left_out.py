"""one step left out

One batch had no step after each restart. If the file says how many steps are done, that number
is the index of the next batch.

Three steps are done. What is the index of the next batch?
"""

done, draft = 0, path.with_suffix(".draft")
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["done"] + 1
for step in range(done, len(batches)):
    take_step(model, optimizer, *batches[step])
    if dist.get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "done": step + 1}, draft)
        os.replace(draft, path)
