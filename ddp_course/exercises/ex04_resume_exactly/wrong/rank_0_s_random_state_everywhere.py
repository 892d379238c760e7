"""rank 0's random state everywhere

Every rank continued with rank 0's random numbers. random_states() is a list with one state for
each rank: take that of dist.get_rank().

random_states() gives one state for each rank. Which one is this rank's?
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][0])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
