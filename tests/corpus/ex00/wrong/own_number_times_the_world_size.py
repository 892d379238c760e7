# status: fail
# mistake: own number times the world size
# fills: the stub
return number * dist.get_world_size()
