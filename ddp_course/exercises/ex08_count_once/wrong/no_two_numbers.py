"""no two numbers

Your function is to return two numbers: (accuracy, macro_f1).
"""

places = torch.arange(len(labels)) * dist.get_world_size() + dist.get_rank()
counts = (places < total).double().to(labels.device)  # 0 for what only fills up
matrix = torch.zeros(classes, classes, dtype=torch.float64, device=labels.device)
matrix.index_put_((labels, guesses), counts, accumulate=True)
dist.all_reduce(matrix)
hits = matrix.diag()
f1 = 2 * hits / (matrix.sum(0) + matrix.sum(1))
return None
