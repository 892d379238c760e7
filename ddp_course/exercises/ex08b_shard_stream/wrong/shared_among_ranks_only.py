"""shared among ranks only

The workers of one rank all took the same samples. There are world_size × workers readers, not
world_size.
"""

return itertools.islice(stream, rank, None, world_size)
