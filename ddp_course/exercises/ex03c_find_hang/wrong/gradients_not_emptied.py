"""gradients not emptied

backward() adds to the gradients that are there, so each step also uses those of all steps
before it: optimizer.zero_grad() belongs in the loop.
"""

total = 0.0
for x, y in batches:
    loss = ((model(x) - y) ** 2).sum() / max(1, len(x))
    loss.backward()
    optimizer.step()
    total += loss.item()
return total
