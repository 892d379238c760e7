# status: pass
# fills: the stub
batches = []
local = global_batch // world_size
while len(order) - done >= global_batch:
    begin = done + rank * local
    batches.append(tuple(order[begin : begin + local]))
    done += global_batch
return batches
