# status: fail
# mistake: the ranks have drifted apart
# fills: the stub
total = 0.0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    if len(x):
        optimizer.step()
    total += loss.item()
return total
