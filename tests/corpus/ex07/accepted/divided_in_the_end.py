# status: pass
# fills: the stub
for i, (x, y) in enumerate(micro_batches):
    model.require_backward_grad_sync = i + 1 == len(micro_batches)
    nn.functional.mse_loss(model(x), y).backward()
for parameter in model.parameters():
    parameter.grad /= len(micro_batches)
