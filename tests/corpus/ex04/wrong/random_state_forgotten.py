# status: fail
# mistake: random state forgotten
# fills: the stub
saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
