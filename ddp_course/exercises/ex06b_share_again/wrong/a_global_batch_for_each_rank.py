"""a global batch for each rank

Each rank takes global_batch samples in a step, so the step grows with the number of ranks. The
ranks together take global_batch.

How many samples does the optimizer see in one step, over all ranks?
"""

mine = order[done:][rank::world_size]
firsts = range(0, len(mine) - global_batch + 1, global_batch)
return [mine[first : first + global_batch] for first in firsts]
