# status: fail
# mistake: another operation than the sum
# fills: the stub
total = number.clone()
dist.all_reduce(total, op=dist.ReduceOp.MAX)
return total
