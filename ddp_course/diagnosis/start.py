"""Ranks that do not meet: in init_process_group, in new_group, at a port."""

from __future__ import annotations

import re

from ddp_course.diagnosis import messages
from ddp_course.diagnosis.evidence import (
    Evidence,
    elsewhere,
    in_function,
    limit,
    standing_at,
    threshold_s,
    waited_s,
)
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.words import named, seconds
from ddp_course.observe import output
from ddp_course.run.failure import counted, exit_text

_INIT = "init_process_group"
_KINDS = frozenset({
    "port-in-use", "wrong-address", "unknown-host", "rank-never-started", "no-such-interface",
    "no-address", "loopback-name", "no-connection", "no-libuv",
})  # fmt: skip
_STORE = re.compile(r"wait timeout after (?P<ms>\d+)ms, keys: \S*?/(?P<rank>\d+)\s*$", re.MULTILINE)


def started_again(e: Evidence) -> Cause | None:
    """The process group was destroyed and made anew, and met the addresses of the old one."""
    again = [r for r, mine in e.ledgers.items() if mine.entries and in_function(e, r, _INIT)]
    words = "\n".join(output.last_words(e.lines, rank) for rank in e.ledgers)
    alone = len(again) < len(e.ledgers) and not re.search("connectFullMesh|Connection", words)
    if not again or alone or (e.ended == "running" and waited_s(e, again) < threshold_s(e)):
        return None
    facts = {"who": named(again), "at": standing_at(e, again[0]), "limit": limit(e)}
    return Cause("rank-never-started.again", None, facts, _INIT, standing=True)


def at_start(e: Evidence) -> Cause | None:
    """The ranks did not find each other in init_process_group."""
    for rank in e.failed:
        if found := _STORE.search(e.stderr(rank)):
            return _absent(e, int(found["rank"]), float(found["ms"]) / 1000, e.failed)
    for texts in ([e.stderr(rank) for rank in e.failed], e.agent):
        known = messages.find(texts)
        if known and known[0].kind in _KINDS:
            return _by_hand(e) or _by_message(e, *known)
    inside = [rank for rank in e.ledgers if in_function(e, rank, _INIT)]
    absent = sorted(set(e.ledgers) - set(inside))
    if not inside or any(mine.entries for mine in e.ledgers.values()):
        return None
    if absent:
        return _absent(e, absent[0], waited_s(e, inside), inside)
    if e.ended == "time-out":
        facts = {"who": named(inside), "limit": limit(e)}
        return Cause("rank-never-started.waited", None, facts, _INIT, standing=True)
    return None


def _by_hand(e: Evidence) -> Cause | None:
    """The script gives rank or world_size itself, and not as they are."""
    size = e.source.argument(_INIT, "world_size")
    facts = {"asked": size, "ranks": counted(e.ranks), "at": ""}
    if size.isdigit() and int(size) != e.ranks:
        return Cause("rank-never-started.size", None, facts, _INIT, standing=True)
    rank = e.source.argument(_INIT, "rank")
    if rank and not re.search(r"\bRANK\b", rank):
        return Cause("same-rank-twice", None, {"code": rank}, _INIT, standing=True)
    return None


def _by_message(e: Evidence, message: messages.Message, means: str) -> Cause:
    unverified = (
        "" if message.verified else "known from reports; not verified on a machine like this"
    )
    facts = {
        "kind": message.kind, "means": means, "do": message.do, "lesson": message.lesson,
        "unverified": unverified,
    }  # fmt: skip
    who = e.failed[0] if len(e.failed) == 1 else None
    return Cause("message.meeting", who, facts, _INIT)


def _absent(e: Evidence, absent: int, waited: float, failed: list[int]) -> Cause:
    """Some waited for a rank that did not come."""
    making = [rank for rank in e.ledgers if in_function(e, rank, "new_group")]
    facts = {
        "who": f"rank {absent}", "waited": seconds(waited), "at": standing_at(e, absent),
        "others": named(rank for rank in failed if rank != absent), "ranks": counted(e.ranks),
    }  # fmt: skip
    if making:
        others = sorted(set(e.ledgers) - set(making))
        facts |= {
            "who": named(making),
            "at": standing_at(e, making[0]),
            "elsewhere": elsewhere(e, others),
        }
        alone = making[0] if len(making) == 1 else None
        return Cause("different-groups.waited", alone, facts, "new_group", standing=True)
    mine = e.ledgers.get(absent)
    if mine is not None and not mine.entries and in_function(e, absent, _INIT):
        renamed = Cause("rank-never-started.renamed", absent, facts, _INIT, standing=True)
        return _by_hand(e) or renamed
    if absent >= e.ranks:
        return _by_hand(e) or Cause("rank-never-started", None, facts, _INIT, standing=True)
    gone = e.codes.get(absent) == 0
    facts["elsewhere"] = f"it had left with {exit_text(0)}" if gone else elsewhere(e, [absent])
    return Cause("never-arrived.start", absent, facts, _INIT, standing=True)
