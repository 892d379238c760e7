# status: fail
# mistake: the rank as a device number
# fills: the stub
if gpus >= local_world_size:
    return DDP(model.to(f'cuda:{dist.get_rank()}'), device_ids=[dist.get_rank()])
return DDP(model)
