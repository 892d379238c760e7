# status: pass
# fills: the stub
rank, world_size = dist.get_rank(), dist.get_world_size()
parameters = list(model.parameters())
owners = [number * world_size // len(parameters) for number in range(len(parameters))]
mine = [one for one, owner in zip(parameters, owners) if owner == rank]
optimizer = make_optimizer(mine)
for x, y in batches:
    for one in parameters:
        one.grad = None
    (model(x) - y).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for one, owner in zip(parameters, owners):
            dist.broadcast(one, owner)
