"""another operation than the sum

That is the largest, the smallest or the product over ranks. all_reduce sums if you leave `op`
out.

What does all_reduce do with the ranks' tensors if you do not say which operation?
"""

total = number.clone()
dist.all_reduce(total, op=dist.ReduceOp.MAX)
return total
