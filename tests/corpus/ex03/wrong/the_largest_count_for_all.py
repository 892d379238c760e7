# status: fail
# mistake: the largest count for all
# fills: the stub
samples = torch.tensor(len(losses))
dist.all_reduce(samples, op=dist.ReduceOp.MAX)
return losses.sum() / samples
