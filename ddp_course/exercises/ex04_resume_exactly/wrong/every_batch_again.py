"""every batch again

All batches were trained again after the interruption. Save how many steps are done, and begin
the loop there.
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
for step in range(0, len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
