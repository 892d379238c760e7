# status: fail
# mistake: no gradients
# fills: the stub
model.zero_grad()
