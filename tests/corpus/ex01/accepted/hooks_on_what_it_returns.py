# status: pass
# fills: the stub
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
if gpus >= local_world_size:
    wrapped = DDP(model.to(f"cuda:{local_rank}"), device_ids=[local_rank])
else:
    wrapped = DDP(model.to("cpu"))
wrapped.register_comm_hook(None, allreduce_hook)
wrapped.register_forward_hook(lambda *_: None)
return wrapped
