# status: fail
# mistake: a GPU for some ranks only
# fills: the stub
if gpus > local_rank:
    return DDP(model.to(local_rank), device_ids=[local_rank])
return DDP(model)
