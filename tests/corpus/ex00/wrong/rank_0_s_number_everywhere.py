# status: fail
# mistake: rank 0's number everywhere
# fills: the stub
total = number.clone()
dist.broadcast(total, src=0)
return total
