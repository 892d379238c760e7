"""the own piece left out

The sum of the others is right, but your own piece is not in it: what comes in the last step needs
your addition, too.
"""

rank, world_size = dist.get_rank(), dist.get_world_size()
passing = pieces[(rank - 1) % world_size]
for step in range(world_size - 1):
    received = torch.empty_like(passing)
    send = dist.isend(passing, dst=(rank + 1) % world_size)
    dist.recv(received, src=(rank - 1) % world_size)
    send.wait()
    if step == world_size - 2:
        return received
    passing = received + pieces[(rank - step - 2) % world_size]
