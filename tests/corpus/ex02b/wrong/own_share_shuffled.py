# status: fail
# mistake: own share shuffled
# fills: the stub
import random
order = list(range(size))
count = math.ceil(size / world_size)
order += order[: count * world_size - size]
mine = order[rank::world_size]
random.Random(epoch).shuffle(mine)
return mine
