"""mean of no samples

Right as long as every rank has samples. The mean of none is 0 / 0, not a number, and no later
factor repairs it. The sum of none is 0: start from losses.sum().

What are the sum and the mean of an empty tensor?
"""

n = torch.tensor(float(len(losses)), device=losses.device)
mine = len(losses)
dist.all_reduce(n)
return losses.mean() * mine * dist.get_world_size() / n
