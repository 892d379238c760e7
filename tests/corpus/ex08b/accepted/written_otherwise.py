# status: pass
# fills: the stub
for place, sample in enumerate(stream):
    if place % world_size == rank and place // world_size % workers == worker:
        yield sample
