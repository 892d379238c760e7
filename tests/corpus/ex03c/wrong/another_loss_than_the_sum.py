# status: fail
# mistake: another loss than the sum
# fills: the stub
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
return loss.item()
