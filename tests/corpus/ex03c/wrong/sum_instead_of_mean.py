# status: fail
# mistake: sum instead of mean
# fills: the stub
total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum()
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
