"""one wish and no more

Your ranks stop when exactly one of them wants to. Ask whether the sum is above 0, not whether
it is 1.

What is the sum of the flags when two ranks want to stop?
"""

flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
return flag.item() == 1
