"""size taken for operation

The kinds differ in the first word only: "all_reduce 4" and "all_reduce 5" are the same
operation with different sizes. Compare call.split()[0].
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
        if row.count(call) == 1:
            return "operation", rank
