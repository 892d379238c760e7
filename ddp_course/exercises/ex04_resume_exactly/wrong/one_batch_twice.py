"""one batch twice

One batch was trained twice: the checkpoint says `step`, but when it is written that step is
done. Save the number of the next one, step + 1.

When the file is written, how many steps are done?
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step})
