# status: fail
# mistake: mean of no samples
# fills: the stub
n = torch.tensor(float(len(losses)), device=losses.device)
mine = len(losses)
dist.all_reduce(n)
return losses.mean() * mine * dist.get_world_size() / n
