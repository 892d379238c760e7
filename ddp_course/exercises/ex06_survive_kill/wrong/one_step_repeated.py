"""one step repeated

One batch was trained again after each restart. After step i (from 0), save the number of steps
done: i + 1.

After step 0, how many steps are done?
"""

done, rank = 0, dist.get_rank()
draft = f"{path}.{rank}"
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved['model'])
    optimizer.load_state_dict(saved['optimizer'])
    done = saved['done']
for step, (x, y) in enumerate(batches):
    if step >= done:
        take_step(model, optimizer, x, y)
        if rank == 0:
            torch.save(
                {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                 'done': step}, draft)
            os.replace(draft, path)
