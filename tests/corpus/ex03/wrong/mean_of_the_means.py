# status: fail
# mistake: mean of the means
# fills: the stub
return losses.mean()
