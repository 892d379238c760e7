"""weights changed

The weights changed. Average parameter.grad, not the parameter: the optimizer turns equal
gradients into equal weights by itself.

Which line writes into a parameter itself, and whose work is that?
"""

for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= 3
        dist.all_reduce(p.data)
