"""nothing saved

When the interruption came there was no checkpoint. Call save(path, …) on all ranks, in the
loop, after each step.
"""

for batch in batches:
    take_step(batch)
