# status: fail
# mistake: nothing returned
# fills: the stub
dist.all_reduce(number.clone())
