"""Runs that ended with exit code 0: whether the calls agree, and the replicas are equal."""

from __future__ import annotations

from ddp_course.diagnosis.evidence import Evidence
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.words import brought, call_name, call_text, counted, named
from ddp_course.observe.align import Difference, first_difference, pairs
from ddp_course.observe.ledger import Replica


def unlike(e: Evidence) -> Cause | None:
    """All ended well, and yet their calls differ: an error was caught, or nobody waited for it."""
    rows = [row for row in e.rows if row.verdict != "same"]
    rows += [row for row in pairs(e.ledgers) if row.verdict == "differs"]
    for row in sorted(rows, key=lambda row: row.t):
        here = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        lacking = sorted(
            rank for rank, entry in row.entries.items() if entry is None and e.ledgers[rank].entries
        )
        rank, entry = next(iter(here.items()))
        facts = {"few": named(lacking), "many": named(here), "call": call_text(entry)}
        name = "different-collectives.finished"
        if not lacking:
            if len({(n.bytes, n.op if n.p2p is None else "") for n in here.values()}) == 1:
                continue
            facts["calls"] = "; ".join(
                f"rank {r} was in {call_text(n)} with {brought(n)}" for r, n in here.items()
            )
            name = (
                "different-collectives.finished_apart"
                if entry.p2p is None
                else "different-collectives.finished_message"
            )
        return Cause(name, (lacking or [rank])[0], facts, call_name(entry), standing=True)
    return None


def diverged(e: Evidence) -> Cause | None:
    """Replicas that should be equal and are not: nothing failed, and the training is wrong."""
    if order := _other_order(e):
        return order
    part = first_difference(e.ledgers)
    return _by_digests(e) if part is None else _parted(e, part)


def _parted(e: Evidence, part: Difference) -> Cause:
    """From which step on, in which parameters, and why."""
    names, replica = part.parameters, part.replica
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    facts = {
        "model": f"DDP({replica.name})", "few": named(part.ranks), "step": str(part.after),
        "since": str(part.since) if part.since else "", "parameters": f"{names[0]}{more}",
        "are": "are" if len(names) > 1 else "is",
    }  # fmt: skip
    rank = part.ranks[0]
    if scales := _scales(e):
        return Cause("replicas-diverge.scaler", rank, facts | {"scales": scales})
    if part.after == 0:
        return Cause("replicas-diverge.start", rank, facts)
    place = replica.parameters.index(names[0])
    frozen = [after for after, values in replica.samples.items() if values[place] is None]
    if frozen and min(frozen) < part.after and part.since is not None:
        return Cause("replicas-diverge.unfrozen", rank, facts)
    if _averaged(e, part):
        return Cause("replicas-diverge.update", rank, facts | {"updates": _updates(e)})
    return Cause("replicas-diverge.step", rank, facts)


def _averaged(e: Evidence, part: Difference) -> bool:
    """Whether DDP averaged gradients on all ranks in the step after which the replicas differ."""
    ledgers = [e.ledgers[rank] for rank in part.replica.ranks if rank in e.ledgers]
    return all(
        len(mine.replicas) == 1
        and any(n.passes == part.after and (n.part or "").startswith("gradient")
                for n in mine.entries)
        for mine in ledgers
    )  # fmt: skip


def _updates(e: Evidence) -> str:
    """ "rank 1 made 6 updates, ranks 0 and 2 made 8", if the optimizers' steps are not as many."""
    by_count: dict[int, list[int]] = {}
    for rank, mine in e.ledgers.items():
        by_count.setdefault(mine.steps, []).append(rank)
    if len(by_count) < 2 or 0 in by_count:
        return ""
    sides = sorted(by_count.items(), key=lambda side: len(side[1]))
    return ", ".join(f"{named(ranks)} made {counted(count, 'update')}" for count, ranks in sides)


def _scales(e: Evidence) -> str:
    """ "1024 on rank 0, 256 on rank 1", if the ranks' scalers differ at the same update."""
    by_rank = {rank: mine.scales for rank, mine in e.ledgers.items() if mine.scales}
    common = set.intersection(*map(set, by_rank.values())) if by_rank else set()
    for update in sorted(common):
        told = {rank: scales[update] for rank, scales in by_rank.items()}
        if len(set(told.values())) > 1:
            return ", ".join(f"{scale:g} on rank {rank}" for rank, scale in told.items())
    return ""


def _other_order(e: Evidence) -> Cause | None:
    """Layers that the ranks registered in different orders: DDP pairs parameters by their place."""
    models: dict[tuple[int, tuple[int, ...]], dict[int, Replica]] = {}
    for rank, mine in e.ledgers.items():
        for replica in mine.replicas:
            models.setdefault((replica.number, replica.ranks), {})[rank] = replica
    for by_rank in models.values():
        first, *others = by_rank.items()
        for rank, replica in others:
            for ours, theirs in zip(replica.parameters, first[1].parameters, strict=False):
                if ours != theirs:
                    facts = {"model": f"DDP({replica.name})", "few": f"rank {rank}", "ours": ours,
                             "first": f"rank {first[0]}", "others": theirs}  # fmt: skip
                    return Cause("replicas-diverge.order", rank, facts)
    return None


def _by_digests(e: Evidence) -> Cause | None:
    """What the ranks themselves reported as digests."""
    for name, by_rank in _digests(e).items():
        if len(by_rank) < 2 or len(set(by_rank.values())) == 1:
            continue
        reference = by_rank[min(by_rank)]
        odd = sorted(rank for rank, value in by_rank.items() if value != reference)
        facts = {
            "model": name, "few": named(odd), "first": f"rank {min(by_rank)}",
            "digests": "\n".join(f"rank {r}: digest {by_rank[r]}" for r in sorted(by_rank)),
        }  # fmt: skip
        return Cause("replicas-diverge", odd[0], facts)
    return None


def _digests(e: Evidence) -> dict[str, dict[int, str]]:
    """{model: {rank: digest of its parameters}}: of report.digest(), and of the recorder."""
    found: dict[str, dict[int, str]] = {}
    last = max((event.get("attempt", 0) for event in e.events), default=0)
    seen: dict[tuple[int, str], int] = {}
    for event in e.events:
        if event["event"] != "digest" or event.get("attempt", 0) != last:
            continue
        rank, name, value = event["rank"], event.get("name"), event.get("digest")
        if isinstance(name, str) and isinstance(value, str):
            number = seen[rank, name] = seen.get((rank, name), 0) + 1
            found.setdefault(f"{name}, check {number}", {})[rank] = value
    for rank, mine in e.ledgers.items():
        for replica in mine.replicas:
            for name, value in replica.digests.items():
                found.setdefault(name, {})[rank] = value
    return found


def healthy(e: Evidence) -> Cause:
    """Nothing is wrong as far as was looked."""
    messages = any(entry.p2p for mine in e.ledgers.values() for entry in mine.entries)
    made = [] if messages else [len(n.entries) + n.dropped for n in e.ledgers.values()]
    agree = made and min(made) == max(made) > 0
    equal = any(len(by_rank) > 1 for by_rank in _digests(e).values())
    facts = {
        "ranks": counted(e.ranks, "rank"),
        "calls": f"{counted(made[0], 'collective')} each, and they agree" if agree else "",
        "replicas": "the replicas are equal" if equal else "",
        "again": counted(e.attempts - 1, "restart") if e.attempts > 1 else "",
    }
    return Cause("healthy", None, facts)
