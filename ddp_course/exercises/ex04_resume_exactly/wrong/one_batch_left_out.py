"""one batch left out

After the interruption one batch was never trained. If the checkpoint says how many steps are
done, that number is the index of the next batch.

Three steps are done. What is the index of the next batch?
"""

saved = load(path)
begin = 0
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
    begin = saved["step"] + 1
for step in range(begin, len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
