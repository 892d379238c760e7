"""a short ledger blamed first

A rank that was killed or raised has a short ledger, too. Ask for these first; only then does a
short ledger mean that the rank never came.

Why may a ledger be short?
"""

lengths = [len(ledger) for ledger in wreck.ledgers]
if min(lengths) < max(lengths):
    return "missing", lengths.index(min(lengths))
if -9 in wreck.exit_codes:
    return "killed", wreck.exit_codes.index(-9)
for rank, error in enumerate(wreck.errors):
    if error and CLOSED not in error and "Timed out" not in error:
        return "raised", rank
for row in zip(*wreck.ledgers, strict=True):
    for rank, call in enumerate(row):
        if row.count(call) == 1:
            same = call.split()[0] == row[rank - 1].split()[0]
            return "size" if same else "operation", rank
