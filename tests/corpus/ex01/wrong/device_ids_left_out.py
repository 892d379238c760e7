# status: fail
# mistake: device_ids left out
# fills: the stub
if gpus >= local_world_size:
    return DDP(model.cuda(local_rank))
return DDP(model)
