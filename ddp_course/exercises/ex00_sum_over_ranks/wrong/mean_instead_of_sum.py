"""mean instead of sum

This is the mean over ranks, and the task is the sum. Leave out the division (or ReduceOp.AVG:
all_reduce sums by default).

Which of your lines divides, and was that asked for?
"""

total = number.clone()
dist.all_reduce(total)
return total / dist.get_world_size()
