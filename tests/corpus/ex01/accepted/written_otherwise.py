# status: pass
# fills: the stub
device = torch.device('cuda', local_rank) if gpus >= local_world_size else 'cpu'
if gpus >= local_world_size:
    torch.cuda.set_device(device)
    model = model.cuda()
return nn.parallel.DistributedDataParallel(
    model, device_ids=None if device == 'cpu' else [device])
