# status: fail
# mistake: mean instead of sum
# fills: the stub
total = number.clone()
dist.all_reduce(total)
return total / dist.get_world_size()
