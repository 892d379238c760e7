"""random state of the step before

The numbers of the last step were drawn once more: the states were taken before the step. Take
them after it, like everything else.

Does your step draw random numbers before or after you take the states?
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
for step in range(saved.get("step", 0), len(batches)):
    early = random_states()
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": early, "step": step + 1})
