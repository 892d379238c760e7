# status: pass
# fills: the stub
total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y) if len(x) else model(x).sum() * 0
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
