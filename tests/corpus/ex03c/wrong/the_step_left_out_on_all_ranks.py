# status: fail
# mistake: the step left out on all ranks
# fills: the stub
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
