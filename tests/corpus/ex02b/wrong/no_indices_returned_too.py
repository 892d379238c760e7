# status: fail
# mistake: no indices returned
# fills: the stub
return [float(rank)] * size
