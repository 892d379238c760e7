"""stops at the first empty batch

All ranks stop when one of them has no samples, and what comes after is never learned from. Let
the rank without samples take part.
"""

total = 0
for x, y in batches:
    least = torch.tensor(len(x))
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    if not least:
        break
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
