"""ranks counted in place of workers

The readers' numbers overlap: a rank has `workers` readers, so its numbers begin at rank ×
workers.
"""

return itertools.islice(stream, rank * world_size + worker, None, world_size * workers)
