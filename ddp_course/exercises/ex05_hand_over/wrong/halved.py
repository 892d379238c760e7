"""halved

Every gradient is half of what it should be. Do not divide by the number of ranks:
there is one batch here, and each sample goes through both ranks.

Is anything in this exercise the same on both ranks, so that one could average it?
"""

if dist.get_rank() == 0:
    hidden = stage(data)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.zeros_like(hidden)
    dist.recv(gradient, src=1)
    torch.autograd.backward(hidden, gradient)
else:
    hidden = torch.zeros_like(data)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    loss = ((stage(hidden) - data) ** 2).mean()
    gradient, *own = torch.autograd.grad(loss, [hidden, *stage.parameters()])
    for parameter, g in zip(stage.parameters(), own):
        parameter.grad = g if parameter.grad is None else parameter.grad + g
    dist.send(gradient, dst=0)
for p in stage.parameters():
    p.grad /= dist.get_world_size()
