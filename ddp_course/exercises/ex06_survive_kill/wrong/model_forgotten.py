"""model forgotten

The last start began at the right step, but with fresh weights. Load what you saved:
model.load_state_dict(…).
"""

done, rank = 0, dist.get_rank()
draft = f"{path}.{rank}"
if path.exists():
    saved = torch.load(path)
    pass
    optimizer.load_state_dict(saved['optimizer'])
    done = saved['done']
for step, (x, y) in enumerate(batches):
    if step >= done:
        take_step(model, optimizer, x, y)
        if rank == 0:
            torch.save(
                {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                 'done': step + 1}, draft)
            os.replace(draft, path)
