# status: fail
# mistake: world size forgotten
# fills: the stub
n = torch.tensor(float(len(losses)), device=losses.device)
dist.all_reduce(n)
return losses.sum() / n
