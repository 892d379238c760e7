"""no loss returned

All ranks finish, with the right weights. What is missing is the sum of this rank's losses:
return it.
"""

total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total)
