# status: fail
# mistake: nothing trained
# fills: the stub
return model.train() and 0.0
