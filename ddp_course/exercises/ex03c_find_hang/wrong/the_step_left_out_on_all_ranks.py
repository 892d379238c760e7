"""the step left out on all ranks

All ranks finish, because all leave the step out when one of them has no samples. That throws
the others' samples away. Let the rank without samples take part.
"""

total = 0
for x, y in batches:
    least = torch.tensor(len(x))
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    if not least:
        continue
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
