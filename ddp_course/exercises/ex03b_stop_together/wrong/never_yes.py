"""never yes

Your ranks never stop. all_reduce returns None: the answer is in the tensor that you gave it.
"""

flag = torch.tensor(float(wish), device=device)
return dist.all_reduce(flag, op=dist.ReduceOp.MAX) is not None
