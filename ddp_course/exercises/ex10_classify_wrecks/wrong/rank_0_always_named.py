"""rank 0 always named

The kinds are right, but rank 0 is named in every wreck. Return the rank where you found the
mark.
"""

if -9 in wreck.exit_codes:
    return "killed", 0
for rank, error in enumerate(wreck.errors):
    if error and CLOSED not in error and "Timed out" not in error:
        return "raised", 0
lengths = [len(ledger) for ledger in wreck.ledgers]
if min(lengths) < max(lengths):
    return "missing", 0
for row in zip(*wreck.ledgers, strict=True):
    for rank, call in enumerate(row):
        if row.count(call) == 1:
            same = call.split()[0] == row[rank - 1].split()[0]
            return "size" if same else "operation", 0
