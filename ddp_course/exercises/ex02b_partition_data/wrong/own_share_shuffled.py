"""own share shuffled

The order changes, but each rank keeps the same samples in every epoch. Shuffle all indices
first, and share them out then.
"""

import random
order = list(range(size))
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
mine = order[rank::world_size]
random.Random(epoch).shuffle(mine)
return mine
