"""rank 1 never goes back

Rank 1 has no gradients: its backward did not run. It has the target, so the loss and its
backward() are there.
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
        pass
    dist.send(gradient, dst=0)
