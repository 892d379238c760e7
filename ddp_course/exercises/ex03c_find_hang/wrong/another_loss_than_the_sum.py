"""another loss than the sum

The weights are right. What is returned is not the sum of this rank's losses: add up every
batch's loss, and do not divide.
"""

for x, y in batches:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
return loss.item()
