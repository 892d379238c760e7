"""nothing returned

Your function is to return, or to yield, this worker's samples.
"""

return None
