"""counted twice

Some numbers count more than once. The sum that all_reduce leaves already
includes this rank's own number, and a second all_reduce adds up sums.
"""

total = number.clone()
dist.all_reduce(total)
return number + total
