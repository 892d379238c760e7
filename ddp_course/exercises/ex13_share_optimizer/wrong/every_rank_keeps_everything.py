"""every rank keeps everything

Every rank made an optimizer for all parameters. The weights are right, and nothing is saved: give
make_optimizer this rank's share only.
"""

rank, world_size = dist.get_rank(), dist.get_world_size()
parameters = list(model.parameters())
optimizer = make_optimizer(parameters)
for x, y in batches:
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()  # averages all gradients, on all ranks
    optimizer.step()  # of this rank's parameters only
    for number, parameter in enumerate(parameters):
        dist.broadcast(parameter.data, src=number % world_size)
