"""no answer returned

Your function returned neither True nor False. all_reduce changes its argument in place and
returns None: read the answer from the tensor that you gave it.
"""

flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag)
