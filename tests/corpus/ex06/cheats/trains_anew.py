# status: fail
# says: What each rank had
# mistake: begins again at step 0
# fills: the stub
for x, y in batches:
    take_step(model, optimizer, x, y)
