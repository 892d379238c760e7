"""sum instead of mean

The loss was the mean over a batch; now it is the sum, and the steps are longer. Divide by the
number of samples, if there are any.
"""

total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum()
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
