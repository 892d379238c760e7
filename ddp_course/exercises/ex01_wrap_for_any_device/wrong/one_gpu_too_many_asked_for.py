"""one GPU too many asked for

Where there are as many GPUs as ranks, every rank can have one of its own, and yet yours stayed
on the CPU: equal is enough.

With 4 ranks on a machine with 4 GPUs, what does your condition say?
"""

if gpus > local_world_size:
    return DDP(model.to(local_rank), device_ids=[local_rank])
return DDP(model)
