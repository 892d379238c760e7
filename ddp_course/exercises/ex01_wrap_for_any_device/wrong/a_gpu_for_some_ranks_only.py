"""a GPU for some ranks only

There are fewer GPUs than ranks on this machine, and yet a GPU was asked for. Compare gpus with
local_world_size, not with 0: all ranks here must decide alike.
"""

if gpus > local_rank:
    return DDP(model.to(local_rank), device_ids=[local_rank])
return DDP(model)
