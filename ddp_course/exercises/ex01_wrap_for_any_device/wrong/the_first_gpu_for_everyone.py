"""the first GPU for everyone

All ranks are on cuda:0. Each needs its own: cuda:{local_rank}.
"""

if gpus >= local_world_size:
    return DDP(model.to('cuda:0'), device_ids=[0])
return DDP(model)
