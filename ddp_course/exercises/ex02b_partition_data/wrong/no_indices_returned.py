"""no indices returned

Your function returned no list of whole numbers. Return this rank's indices.
"""

order = list(range(size))
