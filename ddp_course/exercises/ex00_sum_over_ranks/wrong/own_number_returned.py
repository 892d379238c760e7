"""own number returned

Each rank returned its own number: nothing was communicated, or the result of the communication
was thrown away. Which tensor did you hand to all_reduce, and which did you return?
"""

return number
