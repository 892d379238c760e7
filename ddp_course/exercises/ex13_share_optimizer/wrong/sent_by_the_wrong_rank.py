"""sent by the wrong rank

Each parameter was sent by a rank that had not updated it, so nothing changed. The owner of
parameter k is the rank whose share it is in.
"""

rank, world_size = dist.get_rank(), dist.get_world_size()
parameters = list(model.parameters())
optimizer = make_optimizer(parameters[rank::world_size])
for x, y in batches:
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()  # averages all gradients, on all ranks
    optimizer.step()  # of this rank's parameters only
    for number, parameter in enumerate(parameters):
        dist.broadcast(parameter.data, src=(number + 1) % world_size)
