"""random state forgotten

After the interruption the ranks drew the numbers of a fresh process. Save random_states(), and
restore this rank's with torch.set_rng_state.
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
