"""the whole step on every rank

Every rank returned all samples of a step. Take a share: step[rank::world_size].
"""

rest = order[done:]
firsts = range(0, len(rest) - global_batch + 1, global_batch)
return [rest[first : first + global_batch] for first in firsts]
