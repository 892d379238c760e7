# status: fail
# mistake: own count times the world size
# fills: the stub
return losses.sum() * dist.get_world_size() / len(losses)
