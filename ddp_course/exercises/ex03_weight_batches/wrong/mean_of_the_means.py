"""mean of the means

These are the means of the shares, averaged over ranks: a sample of the rank with one counts
five times as much as one of the rank with five. How many samples are there on all ranks
together?
"""

return losses.mean()
