"""No rank lacks a call that others have made: what do the ranks do all the time?"""

from __future__ import annotations

from ddp_course.diagnosis.evidence import (
    Evidence,
    activity,
    blocked_in,
    elsewhere,
    faulted_at,
    in_loader,
    in_spawn,
    is_compiling,
    is_importing,
    last_step,
    limit,
    standing_at,
    told_t,
)
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.words import (
    named,
)
from ddp_course.observe import output


def progressing(e: Evidence) -> Cause | None:
    """The ranks still make steps."""
    if e.ended not in ("time-out", "running"):
        return None
    latest, interval = activity(e)
    if not latest or told_t(e) - max(latest.values()) > max(1.0, 4 * interval):
        return None
    made = {rank: step for rank in range(e.ranks) if (step := last_step(e, rank)) is not None}
    facts = {"step": str(min(made.values())) if made else "", **_more_time(e)}
    if e.ended == "running":
        return Cause("running", None, facts)
    return Cause("too-slow", None, facts, standing=True)


def _more_time(e: Evidence) -> dict[str, str]:
    return {"limit": f"{e.limit_s:g} s (limit_s)", "more": f"{10 * e.limit_s:g}"}


def at_work(e: Evidence) -> Cause | None:
    """No progress was seen, and no rank lacks what others have."""
    if e.ended not in ("time-out", "running"):
        return None
    rules = (_in_loaders, _blocked, _importing, _in_collectives)
    found = next(filter(None, (rule(e) for rule in rules)), None)
    if found is not None:
        return found
    if e.ended == "running":
        late = sorted(set(range(e.ranks)) - e.observed.started - set(e.ledgers))
        who = ""
        if late:
            have = "has" if len(late) == 1 else "have"
            who = "no rank has" if len(late) == e.ranks else f"{named(late)} {have} not"
        return Cause("running.started" if late else "running.working", None, {"who": who},
                     standing=True)  # fmt: skip
    return Cause("too-slow.endless", None, _more_time(e), standing=True)


def _in_loaders(e: Evidence) -> Cause | None:
    ranks = [rank for rank in range(e.ranks) if in_loader(e, rank)]
    if not ranks:
        return None
    facts = {"who": named(ranks), "at": standing_at(e, ranks[0]), "limit": limit(e)}
    first = ranks[0] if len(ranks) < e.ranks else None
    return Cause("dataloader-worker.limit", first, facts, standing=True)


def _blocked(e: Evidence) -> Cause | None:
    blocked = {rank: what for rank in range(e.ranks) if (what := blocked_in(e, rank))}
    if not blocked:
        return None
    rank = min(blocked)
    facts = {
        "who": named(blocked),
        "what": blocked[rank],
        "at": standing_at(e, rank),
        "limit": limit(e),
    }
    variant = ".spawn" if in_spawn(e, rank) else "" if facts["at"] else ".thread"
    first = rank if len(blocked) < e.ranks else None
    return Cause(f"stuck{variant}", first, facts, standing=True)


def _importing(e: Evidence) -> Cause | None:
    for name, rule in (("too-slow.importing", is_importing), ("too-slow.compiling", is_compiling)):
        ranks = [rank for rank in range(e.ranks) if rule(e, rank)]
        if ranks and e.ended == "time-out":
            facts = {"who": named(ranks), "at": standing_at(e, ranks[0]), **_more_time(e)}
            return Cause(name, None, facts, standing=True)
    return None


def _in_collectives(e: Evidence) -> Cause | None:
    """From the stacks that faulthandler printed."""
    inside: dict[int, str] = {}
    for rank in range(e.ranks):
        frames = output.stack_of(e.lines, rank)
        calls = [
            f for f in frames if "torch/distributed/" in f[0] or f[2] == "_engine_run_backward"
        ]
        if calls:
            at = faulted_at(e, rank)
            inside[rank] = f"in {calls[-1][2]}{f' at {at}' if at else ''}"
    if not inside:
        return None
    others = [rank for rank in range(e.ranks) if rank not in inside]
    facts = {
        "calls": "; ".join(f"rank {rank} was {text}" for rank, text in inside.items()),
        "elsewhere": elsewhere(e, others), "limit": f"{e.limit_s:g} s (limit_s)",
    }  # fmt: skip
    return Cause("stuck.apart" if others else "stuck.together", None, facts, standing=True)
