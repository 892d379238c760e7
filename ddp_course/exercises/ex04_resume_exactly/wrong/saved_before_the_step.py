"""saved before the step

Called again when all was done, your function took the last step once more: its result had never
been saved. Take the step first and then save, after every step.
"""

saved = load(path)
begin = 0
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
    begin = saved["step"]
for step in range(begin, len(batches)):
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step})
    take_step(batches[step])
