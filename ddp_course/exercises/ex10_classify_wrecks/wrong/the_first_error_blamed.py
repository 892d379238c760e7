"""the first error blamed

The first rank with an error text need not be at fault. Texts like "Connection closed by peer"
and "Timed out" say what happened to a rank, not what it did.

Which errors does a healthy rank write when another one fails?
"""

for rank, error in enumerate(wreck.errors):
    if error:
        return "raised", rank
