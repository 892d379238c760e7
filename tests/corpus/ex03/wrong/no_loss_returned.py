# status: fail
# mistake: no loss returned
# fills: the stub
losses.sum()
