# status: pass
# fills: the stub
samples = torch.tensor([len(losses)])
dist.all_reduce(samples)
return losses.sum() * dist.get_world_size() / samples  # shape (1,)
