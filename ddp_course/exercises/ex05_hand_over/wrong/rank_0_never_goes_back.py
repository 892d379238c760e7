"""rank 0 never goes back

Rank 1 is right, and rank 0 has no gradients: its backward did not run. Autograd ends at the
edge of the process. Send hidden.grad back, and call hidden.backward(gradient) on rank 0 with
it.
"""

if dist.get_rank() == 0:
    hidden = stage(data)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.zeros_like(hidden)
    dist.recv(gradient, src=1)
    pass
else:
    hidden = torch.zeros_like(data)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    loss = ((stage(hidden) - data) ** 2).mean()
    gradient, *own = torch.autograd.grad(loss, [hidden, *stage.parameters()])
    for parameter, g in zip(stage.parameters(), own):
        parameter.grad = g if parameter.grad is None else parameter.grad + g
    dist.send(gradient, dst=0)
