"""accuracy in place of macro-F1

Both numbers are the accuracy (or the micro-F1, which equals it). Compute F1 for each class, then
take the mean over the classes.
"""

places = torch.arange(len(labels)) * dist.get_world_size() + dist.get_rank()
counts = (places < total).double().to(labels.device)  # 0 for what only fills up
matrix = torch.zeros(classes, classes, dtype=torch.float64, device=labels.device)
matrix.index_put_((labels, guesses), counts, accumulate=True)
dist.all_reduce(matrix)
hits = matrix.diag()
f1 = 2 * hits / (matrix.sum(0) + matrix.sum(1))
return (hits.sum() / matrix.sum()).item(), (hits.sum() / matrix.sum()).item()
