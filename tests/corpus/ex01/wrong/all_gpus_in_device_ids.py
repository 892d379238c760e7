# status: fail
# mistake: all GPUs in device_ids
# fills: the stub
if gpus >= local_world_size:
    return DDP(model.to(local_rank), device_ids=list(range(gpus)))
return DDP(model)
