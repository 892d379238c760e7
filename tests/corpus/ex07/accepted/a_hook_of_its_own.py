# status: pass
# fills: the stub
def average(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / dist.get_world_size())
model.register_comm_hook(None, average)
for i, (x, y) in enumerate(micro_batches):
    with nullcontext() if i + 1 == len(micro_batches) else model.no_sync():
        (nn.functional.mse_loss(model(x), y) / len(micro_batches)).backward()
