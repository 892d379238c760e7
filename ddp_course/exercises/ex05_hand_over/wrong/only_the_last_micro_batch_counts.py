"""only the last micro-batch counts

The second micro-batch replaced the gradients of the first. backward() adds to .grad by itself:
do not set it, and do not zero it in here.

What does backward() do with a .grad that already exists?
"""

if dist.get_rank() == 0:
    stage.zero_grad()
    hidden = stage(data)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.zeros_like(hidden)
    dist.recv(gradient, src=1)
    torch.autograd.backward(hidden, gradient)
else:
    stage.zero_grad()
    hidden = torch.zeros_like(data)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    loss = ((stage(hidden) - data) ** 2).mean()
    gradient, *own = torch.autograd.grad(loss, [hidden, *stage.parameters()])
    for parameter, g in zip(stage.parameters(), own):
        parameter.grad = g if parameter.grad is None else parameter.grad + g
    dist.send(gradient, dst=0)
