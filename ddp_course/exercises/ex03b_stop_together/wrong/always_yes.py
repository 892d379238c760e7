"""always yes

Your ranks stop whatever they wish. bool(tensor) is True for any number but 0: what does your
tensor hold when nobody wants to stop?

What does your tensor hold when nobody wants to stop, and what does bool() make of that?
"""

flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
return flag is not None
