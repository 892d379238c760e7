# status: pass
# fills: the stub
parts = torch.load(path, weights_only=True) if path.exists() else {'done': []}
done = parts['done']
if done:
    model.load_state_dict(parts['wrapper'])
    optimizer.load_state_dict(parts['sgd'])
    torch.random.set_rng_state(parts['mine'][dist.get_rank()])
for batch in batches[len(done):]:
    take_step(batch)
    done.append(True)
    parts = {'wrapper': model.state_dict(), 'sgd': optimizer.state_dict()}
    save(path, {**parts, 'mine': random_states(), 'done': done})
