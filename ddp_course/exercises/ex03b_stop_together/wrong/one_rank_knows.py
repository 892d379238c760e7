"""one rank knows

Only one rank has the right answer: that is reduce, which delivers to one rank. all_reduce
delivers to all.
"""

flag = torch.tensor(float(wish), device=device)
dist.reduce(flag, dst=0, op=dist.ReduceOp.MAX)
return bool(flag)
