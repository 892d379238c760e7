"""device_ids left out

DDP accepts that, but then inputs are not moved to this rank's GPU, and the reader of your code
cannot see which one is meant: device_ids=[local_rank].
"""

if gpus >= local_world_size:
    return DDP(model.cuda(local_rank))
return DDP(model)
