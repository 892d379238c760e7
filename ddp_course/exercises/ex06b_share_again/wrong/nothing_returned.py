"""nothing returned

The function must return a list with one list of samples for each step, of whole numbers.
"""

rest = order[done:]
