"""divided twice

The gradients were divided by the number of ranks twice: once is enough.
"""

small = (bucket.buffer() / dist.get_world_size()).bfloat16()
future = dist.all_reduce(small, async_op=True).get_future()
return future.then(lambda done: bucket.buffer().copy_(done.value()[0] / dist.get_world_size()))
