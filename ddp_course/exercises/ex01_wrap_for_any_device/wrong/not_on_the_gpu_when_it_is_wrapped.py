"""not on the GPU when it is wrapped

The model was not on a GPU when DDP wrapped it. First model.to(…), then DDP: it makes its
buckets on the device where it finds the parameters.
"""

if gpus >= local_world_size:
    return DDP(model, device_ids=[local_rank]).to(local_rank)
return DDP(model)
