# status: pass
# fills: the stub
# No ring: each rank sends every other its piece, and adds up what it gets.
rank, world_size = dist.get_rank(), dist.get_world_size()
others = [(rank + step) % world_size for step in range(1, world_size)]
received = {other: torch.empty_like(pieces[rank]) for other in others}
operations = [dist.P2POp(dist.isend, pieces[other], other) for other in others]
operations += [dist.P2POp(dist.irecv, received[other], other) for other in others]
for work in dist.batch_isend_irecv(operations):
    work.wait()
return pieces[rank] + sum(received.values())
