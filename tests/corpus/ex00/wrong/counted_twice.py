# status: fail
# mistake: counted twice
# fills: the stub
total = number.clone()
dist.all_reduce(total)
return number + total
