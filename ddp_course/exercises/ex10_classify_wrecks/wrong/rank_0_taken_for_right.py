"""rank 0 taken for right

You compare each rank with rank 0, but rank 0 may be the odd one. Look for the call that only
one rank made: row.count(call) == 1.

If one of four calls is different from the other three, which one is wrong?
"""

if -9 in wreck.exit_codes:
    return "killed", wreck.exit_codes.index(-9)
for rank, error in enumerate(wreck.errors):
    if error and CLOSED not in error and "Timed out" not in error:
        return "raised", rank
lengths = [len(ledger) for ledger in wreck.ledgers]
if min(lengths) < max(lengths):
    return "missing", lengths.index(min(lengths))
for row in zip(*wreck.ledgers, strict=True):
    for rank, call in enumerate(row):
        if call != row[0]:
            same = call.split()[0] == row[0].split()[0]
            return "size" if same else "operation", rank
