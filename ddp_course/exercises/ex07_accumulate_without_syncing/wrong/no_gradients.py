"""no gradients

No gradient is there. Each micro-batch needs its loss.backward(), and nothing should empty the
gradients afterwards.
"""

model.zero_grad()
