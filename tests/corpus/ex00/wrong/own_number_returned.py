# status: fail
# mistake: own number returned
# fills: the stub
return number
