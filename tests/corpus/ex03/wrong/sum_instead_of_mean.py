# status: fail
# mistake: sum instead of mean
# fills: the stub
return losses.sum()
