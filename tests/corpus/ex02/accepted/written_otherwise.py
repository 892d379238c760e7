# status: pass
# fills: the stub
gradients = [p.grad for p in model.parameters() if p.grad is not None]
flat = torch.cat([g.flatten() for g in gradients])
dist.all_reduce(flat, op=dist.ReduceOp.AVG)
at = 0
for g in gradients:
    g.copy_(flat[at : at + g.numel()].view_as(g))
    at += g.numel()
