"""the ranks' gradients are mixed

The gradients of both ranks were added up, or averaged. These ranks are not replicas: they hold
different layers, whose gradients have nothing to do with each other.
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
    dist.all_reduce(p.grad)
