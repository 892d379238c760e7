"""the epoch begins again

Your steps start with the first sample of the epoch, although `done` samples have been trained on.
Begin with order[done:].

Which samples has the job already trained on, whatever its size was then?
"""

firsts = range(0, len(order) - global_batch + 1, global_batch)
return [order[first : first + global_batch][rank::world_size] for first in firsts]
