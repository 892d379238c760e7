# status: fail
# mistake: one rank has the sum
# fills: the stub
total = number.clone()
dist.reduce(total, dst=0)
return total
