"""one answer for all

Your function gives the same answer for all five wrecks. The wreck that it gets is its argument.
"""

return "missing", 2
