"""What a rank usually does next: the order of calls that all ranks had kept until one left it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddp_course.diagnosis.evidence import Evidence, place
from ddp_course.observe.ledger import Entry, Ledger

Token = tuple[Any, ...]
_RECENT = 300  # calls of a rank that are looked at


def token(entry: Entry) -> Token:
    """What makes two calls the same step of a script: not their number, nor their size."""
    return entry.group, entry.op, entry.part, entry.dtypes, entry.line and path(entry)


def path(entry: Entry) -> tuple[Any, ...]:
    """The learner's lines that led to a call, innermost first, as far as they were recorded."""
    lines = (entry.line, *entry.callers)
    return tuple((frame.file, frame.line) for frame in lines if frame is not None)


def texts(entry: Entry) -> tuple[str, ...]:
    """The code of these lines."""
    lines = (entry.line, *entry.callers)
    return tuple(frame.code for frame in lines if frame is not None)


def before(mine: Ledger, entry: Entry) -> tuple[Entry, ...]:
    """What a rank had called before this call."""
    at = next((i for i, one in enumerate(mine.entries) if one is entry), len(mine.entries))
    return mine.entries[:at]


def has_made(entries: tuple[Entry, ...], entry: Entry) -> bool:
    """Whether a call at this line is among these."""
    return entry.line is not None and any(place(one) == place(entry) for one in entries)


def steps(entries: tuple[Entry, ...], entry: Entry) -> int:
    """How many steps these calls show at the line of this one: one call of each step counts.

    Of the calls of DDP only its gradients come in every step.
    """
    counted = _counted(entries, entry)
    return sum(token(one) == token(counted[0]) for one in counted)


def steps_begun(entries: tuple[Entry, ...], entry: Entry) -> int:
    """The same with the step that this call belongs to."""
    counted = _counted(entries, entry)
    if counted and _is_gradient(counted[0]):
        return steps(entries, entry) + 1
    return steps((*entries, entry), entry)


def _counted(entries: tuple[Entry, ...], entry: Entry) -> list[Entry]:
    same = [one for one in entries if one.line is not None and place(one) == place(entry)]
    return list(filter(_is_gradient, same)) or same


def _is_gradient(entry: Entry) -> bool:
    return (entry.part or "").startswith("gradient bucket")


@dataclass(frozen=True)
class Move:
    """From one call to the next."""

    last: Token
    then: Token
    repeats: int  # of `last` since the last `then`


def moves(entries: tuple[Entry, ...]) -> Iterator[Move]:
    tokens = [token(entry) for entry in entries]
    for i in range(1, len(tokens)):
        last, then = tokens[i - 1], tokens[i]
        earlier = tokens[:i]
        since = len(earlier) - earlier[::-1].index(then) if then in earlier else 0
        yield Move(last, then, earlier[since:].count(last))


def breaks(e: Evidence, rank: int, entry: Entry) -> bool:
    """Whether a rank comes to this call as it never came to it before, against a habit."""
    mine = before(e.ledgers[rank], entry)[-_RECENT:]
    if not mine:
        return False
    move = list(moves((*mine, entry)))[-1]
    known = _known(e, rank, entry, move.last)
    alike = [one for one in known if one.then == move.then]
    return bool(known) and move.repeats not in {one.repeats for one in alike}


def expected(e: Evidence, rank: int, entry: Entry) -> Token | None:
    """What always came where this rank made this call."""
    mine = before(e.ledgers[rank], entry)
    known = _known(e, rank, entry, token(mine[-1])) if mine else []
    then = {one.then for one in known}
    return then.pop() if len(then) == 1 else None


def _known(e: Evidence, rank: int, entry: Entry, last: Token) -> list[Move]:
    """The moves from this call, before that one was made: the rank's own, else those of others."""
    for ranks in ([rank], [other for other in e.ledgers if other != rank]):
        earlier = (
            tuple(one for one in e.ledgers[r].entries[-_RECENT:] if one.t < entry.t) for r in ranks
        )
        if known := [move for made in earlier for move in moves(made) if move.last == last]:
            return known
    return []
