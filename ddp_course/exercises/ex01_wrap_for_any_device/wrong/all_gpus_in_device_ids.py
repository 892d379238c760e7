"""all GPUs in device_ids

device_ids lists the devices of this one rank, so exactly one. A list of all GPUs is for
nn.DataParallel.
"""

if gpus >= local_world_size:
    return DDP(model.to(local_rank), device_ids=list(range(gpus)))
return DDP(model)
