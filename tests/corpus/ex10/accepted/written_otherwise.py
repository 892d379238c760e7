# status: pass
# fills: the stub
for rank, code in enumerate(wreck.exit_codes):
    if code == -9:
        return "killed", rank
for rank, error in enumerate(wreck.errors):
    if error and error != CLOSED and not error.startswith("Timed out"):
        return "raised", rank
longest = max(len(ledger) for ledger in wreck.ledgers)
for rank, ledger in enumerate(wreck.ledgers):
    if len(ledger) < longest:
        return "missing", rank
for position in range(longest):
    calls = [ledger[position] for ledger in wreck.ledgers]
    for rank, call in enumerate(calls):
        others = calls[:rank] + calls[rank + 1 :]
        if call not in others:
            name = call.partition(" ")[0]
            return ("size" if others[0].startswith(name) else "operation"), rank
raise ValueError("nothing is wrong with this wreck")
