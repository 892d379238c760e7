"""argument overwritten

all_reduce works in place, so the caller's tensor now holds the sum. Work on a copy:
number.clone().

Who still needs the tensor that was passed in, and what does an in-place operation do to it?
"""

dist.all_reduce(number)
return number
