# status: pass
# fills: the stub
wishes = [None] * dist.get_world_size()
dist.all_gather_object(wishes, wish)
return any(wishes)
