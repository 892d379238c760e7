# status: fail
# mistake: sum instead of mean
# fills: the stub
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
