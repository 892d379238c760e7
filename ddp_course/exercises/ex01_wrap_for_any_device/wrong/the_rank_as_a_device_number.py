"""the rank as a device number

You took the rank among all processes. On the second machine it is larger than any device number
there: use local_rank.
"""

if gpus >= local_world_size:
    return DDP(model.to(f'cuda:{dist.get_rank()}'), device_ids=[dist.get_rank()])
return DDP(model)
