"""Messages between two ranks: who waits for one that never comes, or is never taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddp_course.diagnosis.evidence import (
    Evidence,
    elsewhere,
    has_left,
    in_function,
    own_frame,
    standing_at,
    threshold_s,
    waited_long,
    waited_s,
    waits_on_handle,
)
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.words import (
    call_text,
    counted,
    named,
    seconds,
)
from ddp_course.observe import ledger
from ddp_course.observe.align import pairs
from ddp_course.observe.ledger import Entry


@dataclass(frozen=True)
class Talk:
    """A message that a rank waits for, or waits to get rid of."""

    direction: str
    peer: int | None
    told: str


def _talk(e: Evidence, rank: int) -> Talk | None:
    """The point-to-point call in which a rank is blocked, or was when it gave up."""
    mine = e.ledgers.get(rank)
    if mine is None or mine.why == "exit":
        return None
    names = "send", "recv", "batch_isend_irecv"
    inside = next((name for name in names if in_function(e, rank, name)), "")
    last = e.last(rank)
    if waits_on_handle(e, rank) and (unanswered := _unanswered(e, rank)):
        last, inside = unanswered, "wait"
    if last is not None and last.p2p is not None and (inside or mine.why == "exception"):
        peer = None if last.p2p.peer == ledger.ANY_RANK else last.p2p.peer
        return Talk(last.p2p.direction, peer, call_text(last))
    if not inside:
        return None
    own = own_frame(e, rank)
    return Talk(inside, None, f"{inside} at {standing_at(e, rank)}" if own else inside)


def _unanswered(e: Evidence, rank: int) -> Entry | None:
    """The message begun by this rank of which its peer knows nothing; a recv before a send."""
    open_rows = [row for row in pairs(e.ledgers) if row.verdict == "missing"]
    mine = [entry for row in open_rows if (entry := row.entries.get(rank)) is not None]
    return min(mine, key=lambda n: (n.p2p is not None and n.p2p.direction, n.t), default=None)


def crossed_pairs(e: Evidence) -> Cause | None:
    """Ranks that wait for each other's messages, in a circle."""
    talks = {rank: talk for rank in range(e.ranks) if (talk := _talk(e, rank))}
    circle = _circle({rank: talk.peer for rank, talk in talks.items()})
    if not circle and len(talks) > 1 and all(talk.peer is None for talk in talks.values()):
        circle = sorted(talks) if len({talk.direction for talk in talks.values()}) == 1 else []
    if not circle or waited_s(e, circle) < threshold_s(e):
        return None
    directions = {talks[rank].direction for rank in circle}
    variant = {frozenset({"recv"}): "", frozenset({"send"}): ".send"}.get(
        frozenset(directions), ".unlike"
    )
    facts = {
        "who": named(circle), "waited": seconds(waited_s(e, circle)),
        "calls": "; ".join(f"rank {rank} is in {talks[rank].told}" for rank in circle),
    }  # fmt: skip
    first = circle[0]
    return Cause(f"crossed-pairs{variant}", first, facts, talks[first].direction, standing=True)


def _circle(peers: Mapping[int, int | None]) -> list[int]:
    for start in sorted(peers):
        path = [start]
        while (after := peers.get(path[-1])) is not None and after in peers:
            if after in path:
                return path[path.index(after) :]
            path.append(after)
    return []


def no_message(e: Evidence) -> Cause | None:
    """One rank waits for a message that its peer never sends, or never takes."""
    talks = {rank: talk for rank in range(e.ranks) if (talk := _talk(e, rank))}
    for rank, talk in talks.items():
        peer = talk.peer
        if peer is None or not 0 <= peer < e.ranks or peer in talks:
            continue
        if not waited_long(e, [rank]):
            continue
        opposite = "send" if talk.direction == "recv" else "recv"
        misled = [r for r, one in talks.items() if (one.direction, one.peer) == (opposite, rank)]
        facts = {
            "who": f"rank {rank}", "call": talk.told, "peer": f"rank {peer}",
            "others": named(misled), "waited": seconds(waited_s(e, [rank])),
            "elsewhere": elsewhere(e, [peer]),
        }  # fmt: skip
        if misled:
            variant = {"send": "wrong_send", "recv": "wrong_recv"}[talk.direction]
            name = f"crossed-pairs.{variant}"
            return Cause(name, rank, facts, talk.direction, standing=True)
        return _peer_fails(e, rank, peer, talk, facts)
    return None


def _peer_fails(e: Evidence, rank: int, peer: int, talk: Talk, facts: dict[str, str]) -> Cause:
    """The peer did not do its part, or not often enough."""
    theirs = e.ledgers.get(peer)
    times = sum(
        n.p2p is not None and n.p2p.peer == rank and n.p2p.direction != talk.direction
        for n in (theirs.entries if theirs is not None else ())
    )
    asked = sum(
        n.p2p is not None and (n.p2p.peer, n.p2p.direction) == (peer, talk.direction)
        for n in e.ledgers[rank].entries
    )
    if talk.direction == "recv" and times >= asked and has_left(e, peer):
        return Cause("exit-early.sending", peer, facts, talk.direction, standing=True)
    does = "sent" if talk.direction == "recv" else "received"
    facts["did"] = f"never {does}" if not times else f"{does} only {counted(times, 'message')}"
    return Cause("never-arrived.message", peer, facts, talk.direction, standing=True)
