# status: fail
# mistake: not on the GPU when it is wrapped
# fills: the stub
if gpus >= local_world_size:
    return DDP(model, device_ids=[local_rank]).to(local_rank)
return DDP(model)
