# status: fail
# mistake: rank 0's count for all
# fills: the stub
n = torch.tensor(float(len(losses)), device=losses.device)
dist.broadcast(n, src=0)
return losses.sum() / n
