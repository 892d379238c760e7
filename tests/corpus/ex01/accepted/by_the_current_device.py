# status: pass
# fills: the stub
if gpus >= local_world_size:
    with torch.cuda.device(local_rank):
        return DDP(model.cuda(), device_ids=[torch.cuda.current_device()])
return DDP(model.cpu())
