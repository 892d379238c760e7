"""optimizer forgotten

The optimizer started from scratch after each restart. Its momentum is the memory of earlier gradients:
save and load optimizer.state_dict() too.

Which part of the training remembers earlier gradients?
"""

done, rank = 0, dist.get_rank()
draft = f"{path}.{rank}"
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved['model'])
    pass
    done = saved['done']
for step, (x, y) in enumerate(batches):
    if step >= done:
        take_step(model, optimizer, x, y)
        if rank == 0:
            torch.save(
                {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                 'done': step + 1}, draft)
            os.replace(draft, path)
