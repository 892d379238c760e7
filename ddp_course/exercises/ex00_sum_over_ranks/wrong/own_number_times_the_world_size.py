"""own number times the world size

That would be right if all ranks had the same number. They do not, and no rank can know
another's number without communicating: dist.all_reduce(tensor).
"""

return number * dist.get_world_size()
