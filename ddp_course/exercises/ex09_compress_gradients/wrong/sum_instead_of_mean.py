"""sum instead of mean

The gradients were added up and not divided. A hook takes the place of DDP's division, too: divide
by dist.get_world_size().
"""

small = (bucket.buffer()* 1).bfloat16()
future = dist.all_reduce(small, async_op=True).get_future()
return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))
