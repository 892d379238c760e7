# status: pass
# fills: the stub
def back(done):
    buffer = bucket.buffer()
    buffer.copy_(done.wait()[0].float())
    buffer.div_(dist.get_world_size())
    return buffer

half = bucket.buffer().to(torch.bfloat16)
return dist.all_reduce(half, async_op=True).get_future().then(back)
