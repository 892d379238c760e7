"""mean instead of sum

The sums are divided by the number of ranks. A reduce-scatter adds up; DDP divides, for gradients.
"""

rank, world_size = dist.get_rank(), dist.get_world_size()
passing = pieces[(rank - 1) % world_size]
for step in range(world_size - 1):
    received = torch.empty_like(passing)
    send = dist.isend(passing, dst=(rank + 1) % world_size)
    dist.recv(received, src=(rank - 1) % world_size)
    send.wait()
    passing = received + pieces[(rank - step - 2) % world_size]
return passing / world_size
