"""the ranks have drifted apart

The ranks began with equal weights and no longer have them: one of them left out a step that the
others took. Every rank takes every step, with or without samples.

Which of your lines does the rank without samples skip?
"""

total = 0.0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    if len(x):
        optimizer.step()
    total += loss.item()
return total
