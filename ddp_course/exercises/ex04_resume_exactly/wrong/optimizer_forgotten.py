"""optimizer forgotten

The weights were loaded, but the momentum began at zero. Save optimizer.state_dict() too, and
load it.

Which part of the training remembers earlier gradients?
"""

saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
