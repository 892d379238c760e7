"""only its own count skipped

`done` counts the samples of all ranks together. Skip all of them: order[done:].

Does `done` count the samples of one rank or of the whole job?
"""

rest = order[done // world_size :]
firsts = range(0, len(rest) - global_batch + 1, global_batch)
return [rest[first : first + global_batch][rank::world_size] for first in firsts]
