# status: fail
# mistake: the first GPU for everyone
# fills: the stub
if gpus >= local_world_size:
    return DDP(model.to('cuda:0'), device_ids=[0])
return DDP(model)
