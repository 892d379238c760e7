"""sent in full

The mean is right, and it was sent as float32. Turn the buffer into bfloat16 before the
all_reduce.
"""

small = (bucket.buffer() / dist.get_world_size())
future = dist.all_reduce(small, async_op=True).get_future()
return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))
