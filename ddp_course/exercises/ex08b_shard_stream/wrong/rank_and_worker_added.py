"""rank and worker added

Two readers have the same number, because rank + worker is the same for several of them. Each rank
needs a block of `workers` numbers.
"""

return itertools.islice(stream, rank + worker, None, world_size * workers)
