"""a collective does it

The result is right, but a collective made it, and an all-reduce sends about twice what is needed.
Write the steps yourself, with isend and recv.
"""

for piece in pieces:
    dist.all_reduce(piece)
return pieces[dist.get_rank()]
