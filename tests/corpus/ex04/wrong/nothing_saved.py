# status: fail
# mistake: nothing saved
# fills: the stub
for batch in batches:
    take_step(batch)
