# status: fail
# mistake: gradients not emptied
# fills: the stub
total = 0.0
for x, y in batches:
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
