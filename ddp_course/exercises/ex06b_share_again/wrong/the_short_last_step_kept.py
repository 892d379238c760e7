"""the short last step kept

The last step has fewer than global_batch samples. Drop it: its shares could be unequal, or empty.

How many samples are left for the last step, and do they divide among the ranks?
"""

rest = order[done:]
firsts = range(0, len(rest), global_batch)
return [rest[first : first + global_batch][rank::world_size] for first in firsts]
