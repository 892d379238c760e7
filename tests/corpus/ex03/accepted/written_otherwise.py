# status: pass
# fills: the stub
counts = [torch.empty(1) for _ in range(dist.get_world_size())]
dist.all_gather(counts, torch.tensor([float(len(losses))]))
return losses.sum() / torch.stack(counts).mean()
