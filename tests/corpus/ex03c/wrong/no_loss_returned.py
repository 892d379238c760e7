# status: fail
# mistake: no loss returned
# fills: the stub
total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total)
