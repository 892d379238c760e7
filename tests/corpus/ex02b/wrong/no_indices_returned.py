# status: fail
# mistake: no indices returned
# fills: the stub
order = list(range(size))
