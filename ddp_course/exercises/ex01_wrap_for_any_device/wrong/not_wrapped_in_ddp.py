"""not wrapped in DDP

What came back does not average: return DDP(model, …), not the model.
"""

return model
