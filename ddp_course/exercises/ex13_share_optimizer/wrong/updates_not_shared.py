"""updates not shared

Each rank has updated its own parameters, and kept the update to itself: the models differ. After
each step the owner of a parameter broadcasts it.
"""

rank, world_size = dist.get_rank(), dist.get_world_size()
parameters = list(model.parameters())
optimizer = make_optimizer(parameters[rank::world_size])
for x, y in batches:
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()  # averages all gradients, on all ranks
    optimizer.step()  # of this rank's parameters only
