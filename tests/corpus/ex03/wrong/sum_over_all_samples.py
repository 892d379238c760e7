# status: fail
# mistake: sum over all samples
# fills: the stub
return losses.sum() * dist.get_world_size()
