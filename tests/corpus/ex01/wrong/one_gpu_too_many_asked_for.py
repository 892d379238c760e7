# status: fail
# mistake: one GPU too many asked for
# fills: the stub
if gpus > local_world_size:
    return DDP(model.to(local_rank), device_ids=[local_rank])
return DDP(model)
