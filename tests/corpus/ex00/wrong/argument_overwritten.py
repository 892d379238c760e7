# status: fail
# mistake: argument overwritten
# fills: the stub
dist.all_reduce(number)
return number
