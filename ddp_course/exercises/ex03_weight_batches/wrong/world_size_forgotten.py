"""world size forgotten

Too small by the world size: DDP divides the sum over ranks by it, and you have divided by all
samples already. Multiply by dist.get_world_size().

DDP divides by something after you have returned. By what?
"""

n = torch.tensor(float(len(losses)), device=losses.device)
dist.all_reduce(n)
return losses.sum() / n
