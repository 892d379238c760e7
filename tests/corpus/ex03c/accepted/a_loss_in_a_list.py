# status: pass
# fills: the stub
total = torch.zeros(1)
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / (len(x) or 1)
    loss.backward()
    optimizer.step()
    total += loss.detach()
return total
