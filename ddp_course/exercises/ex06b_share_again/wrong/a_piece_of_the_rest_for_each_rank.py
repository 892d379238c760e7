"""a piece of the rest for each rank

Nothing is lost or repeated, but a step has different samples than in an undisturbed job. Cut the
rest into steps first, and each step into shares.

Which samples would one process take in its next step?
"""

rest, local = order[done:], global_batch // world_size
size = len(rest) // world_size
mine = rest[rank * size : (rank + 1) * size]
return [mine[first : first + local] for first in range(0, size - local + 1, local)]
