"""not wrapped in DDP"""

if gpus >= local_world_size:
    return nn.DataParallel(model.to(local_rank), device_ids=[local_rank])
return nn.DataParallel(model)
