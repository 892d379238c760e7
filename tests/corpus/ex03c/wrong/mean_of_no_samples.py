# status: fail
# mistake: mean of no samples
# fills: the stub
total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
