"""shared among workers only

All ranks took the same samples. There are world_size × workers readers, not workers.
"""

return itertools.islice(stream, worker, None, workers)
