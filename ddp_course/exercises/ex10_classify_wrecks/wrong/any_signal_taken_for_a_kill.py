"""any signal taken for a kill

Only -9 comes from outside. -15 is torchrun, which ends the ranks that are left, and -6 is Gloo,
which ends a rank that received more than it expected.

Who sends the signals 6, 9 and 15?
"""

if min(wreck.exit_codes) < 0:
    return "killed", wreck.exit_codes.index(min(wreck.exit_codes))
for rank, error in enumerate(wreck.errors):
    if error and CLOSED not in error and "Timed out" not in error:
        return "raised", rank
lengths = [len(ledger) for ledger in wreck.ledgers]
if min(lengths) < max(lengths):
    return "missing", lengths.index(min(lengths))
for row in zip(*wreck.ledgers, strict=True):
    for rank, call in enumerate(row):
        if row.count(call) == 1:
            same = call.split()[0] == row[rank - 1].split()[0]
            return "size" if same else "operation", rank
