"""sum instead of mean

These are the gradients of the summed squared error. mse_loss takes the mean over all elements
if you leave `reduction` out.
"""

if dist.get_rank() == 0:
    hidden = stage(data)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.empty_like(hidden)
    dist.recv(gradient, src=1)
    hidden.backward(gradient)
else:
    hidden = torch.empty_like(data)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    nn.functional.mse_loss(stage(hidden), data, reduction="sum").backward()
    dist.send(hidden.grad, dst=0)
