"""own wish returned

Each rank answered with its own wish, so they part. Which collective tells every rank what the
others wish?
"""

flag = torch.tensor(float(wish), device=device)
dist.all_reduce(flag.clone())
return bool(flag)
