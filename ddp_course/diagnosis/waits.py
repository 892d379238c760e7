"""Who waits for whom: the first call that some ranks entered and others did not.

    the calls, row by row → the first row that lacks a rank; if that rank waits in another group,
    the row that it waits in → what the missing rank does instead

Each rule answers with a Cause, or None if this is not what happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddp_course.diagnosis import exchange
from ddp_course.diagnosis.evidence import (
    Evidence,
    blocked_in,
    elsewhere,
    has_left,
    in_call,
    in_function,
    in_loader,
    left_in_the_middle,
    path_to_call,
    place,
    standing_at,
    threshold_s,
    waited_long,
    waited_s,
)
from ddp_course.diagnosis.habits import breaks, expected, has_made, steps
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.order import Sides, different, message_too_long, met_before, uneven
from ddp_course.diagnosis.words import (
    call_name,
    call_place,
    call_text,
    named,
    place_text,
    seconds,
    shortened,
)
from ddp_course.observe import ledger, output
from ddp_course.observe.align import Row
from ddp_course.observe.ledger import Entry

_SHORT_S = 2.5  # an absence that says nothing yet of a rank that is at work
_EARLIER_ROW_MAY_BE_WHY = (
    "different-collectives", "uneven-steps", "one-rank-only", "other-order", "skipped-step",
)  # fmt: skip


def standstill(e: Evidence) -> Cause | None:
    """The first collective that some ranks entered and others did not, or not alike."""
    if unfit := message_too_long(e):
        return unfit
    rows = [row for row in e.rows if _does_not_fit(row)]
    if not rows:
        return _too_late(e) or exchange.no_message(e) or _same_call(e, [])
    row = _root_of(e, rows)
    if row.group == ledger.NEW_GROUP:
        return _unlike_groups(e, row)
    if apart := _other_groups(e, row):
        return apart
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    lacking = sorted(rank for rank, entry in row.entries.items() if entry is None)
    found = _missing(e, row, entered, lacking) if lacking else different(e, row)
    if found is None or found.kind not in _EARLIER_ROW_MAY_BE_WHY:
        return found
    return met_before(e, row) or _by_exception(e, found)


def _does_not_fit(row: Row) -> bool:
    """Whether ranks lack a call, or brought different ones; another line of code is no trouble."""
    entered = [entry for entry in row.entries.values() if entry is not None]
    alike = {(n.op, n.elements, n.dtypes, n.members) for n in entered}
    return bool(entered) and (
        row.verdict == "missing" or (row.verdict == "differs" and len(alike) > 1)
    )


def _unlike_groups(e: Evidence, row: Row) -> Cause | None:
    """Ranks that made different groups by the same call of new_group, or did not make it."""
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    lacking = sorted(row.entries.keys() - entered.keys())
    sides: dict[tuple[int, ...], list[int]] = {}
    for rank, entry in entered.items():
        sides.setdefault(entry.members, []).append(rank)
    if not waited_long(e, range(e.ranks)):
        return None
    told = [f"{named(who)} made one of {named(of)}" for of, who in sides.items()]
    told += [f"{named(lacking)} made none"] if lacking else []
    facts = {
        "number": str(row.n),
        "sides": "; ".join(told),
        "at": call_place(next(iter(entered.values()))),
    }
    return Cause("different-groups.unlike", None, facts, "new_group", standing=True)


def _root_of(e: Evidence, rows: list[Row]) -> Row:
    """The first row that lacks ranks; if those wait elsewhere, the row that they wait in."""
    row, seen = min(rows, key=lambda row: row.t), list[Row]()
    while row not in seen:
        seen.append(row)
        lacking = [rank for rank, entry in row.entries.items() if entry is None]
        inside = {rank: _waits_in(e, rank, row, rows) for rank in lacking}
        row = next((other for other in inside.values() if other is not None), row)
        if not all(inside.values()):
            return seen[-1]
    for one in seen[seen.index(row) :]:  # a circle: the rank that has left its habit is to blame
        for rank, entry in one.entries.items():
            last = e.last(rank)
            if entry is None and last is not None and breaks(e, rank, last):
                return one
    return seen[0]


def _waits_in(e: Evidence, rank: int, row: Row, rows: list[Row]) -> Row | None:
    """The row of another group in which a rank waits for somebody."""
    last = in_call(e, rank)
    if last is None:
        return None
    others = (one for one in rows if one.group != row.group and one.entries.get(rank) is last)
    return next(others, None)


def _other_groups(e: Evidence, row: Row) -> Cause | None:
    """Ranks that mean different ranks by one process group."""
    entered = [rank for rank, entry in row.entries.items() if entry is not None]
    if not waited_long(e, entered):
        return None
    last = {mine.entries[-1].group for mine in e.ledgers.values() if mine.entries}
    for name in (row.group, *sorted(last - {row.group})):
        sides: dict[tuple[int, ...], list[int]] = {}
        for rank, mine in e.ledgers.items():
            if name in mine.groups:
                sides.setdefault(tuple(mine.groups[name]), []).append(rank)
        if len(sides) > 1:
            told = "; ".join(f"{named(who)} made it of {named(of)}" for of, who in sides.items())
            calls = [n for mine in e.ledgers.values() for n in mine.entries[-1:] if n.group == name]
            facts = {
                "group": name[:12],
                "sides": told,
                "call": call_text(calls[0]) if calls else "",
            }
            return Cause("different-groups", None, facts, standing=True)
    return None


def inside_join(e: Evidence) -> Cause | None:
    """A collective of the learner's own that met one of Join's: Join answers only for DDP."""
    if e.ended not in ("failed", "time-out"):
        return None
    for row in e.rows:
        here = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        joins = [r for r, n in here.items() if n.part is not None and n.part.endswith("for Join")]
        own = [rank for rank, n in here.items() if n.part is None and n.line is not None
               and ".join(" not in n.line.code]  # fmt: skip
        if joins and own:
            mine = here[own[0]]
            facts = {"who": named(own), "call": call_text(mine), "others": named(joins)}
            name = "different-collectives.join"
            return Cause(name, own[0], facts, call_name(mine), standing=True)
    return None


def _too_late(e: Evidence) -> Cause | None:
    """All came to the last call, but somebody after the others had given up."""
    row = e.rows[-1] if e.rows else None
    entered = row.entries if row is not None else {}
    times = {rank: entry.t for rank, entry in entered.items() if entry is not None}
    last = {rank: output.last_words(e.lines, rank) for rank in times}
    limits = [float(said[1]) for text in last.values()
              if (said := re.search(r"Timed out waiting (\d+)ms", text))]  # fmt: skip
    if not limits or len(times) < 2:
        return None
    first, limit_s = min(times.values()), min(limits) / 1000
    late = sorted(rank for rank, t in times.items() if t - first >= 0.9 * limit_s)
    entry = entered[late[0]] if late else None
    if entry is None:
        return None
    facts = {
        "who": named(late), "call": call_text(entry), "after": seconds(times[late[0]] - first),
        "others": named(times.keys() - set(late)), "waited": seconds(limit_s),
    }  # fmt: skip
    return Cause("straggler.late", late[0], facts, call_name(entry), standing=True)


def _same_call(e: Evidence, past: list[int], waited: float = 0.0) -> Cause | None:
    """Ranks that do not get out of a call that all entered.

    past  the ranks that have come out of it, and wait elsewhere
    """
    for row in reversed(e.rows):
        inside = [r for r, n in row.entries.items()
                  if n is not None and n is in_call(e, r) and path_to_call(e, r)]  # fmt: skip
        entry = row.entries[inside[0]] if inside else None
        if entry is None or row.verdict != "same" or entry.part:
            continue
        if set(inside) | set(past) != set(row.entries) or len(inside) + len(past) < 2:
            continue
        waited = max(waited, waited_s(e, inside))
        if waited < threshold_s(e) and not waited_long(e, inside):
            return None
        facts = {
            "who": named(inside), "waited": seconds(waited), "call": call_text(entry),
            "past": named(past) if past else "",
        }  # fmt: skip
        rank = inside[0] if past else None
        return Cause("stuck.same", rank, facts, call_name(entry), standing=True)
    return None


def _missing(e: Evidence, row: Row, entered: dict[int, Entry], lacking: list[int]) -> Cause | None:
    """Some ranks entered a collective that others did not."""
    if not waited_long(e, entered):
        return None
    waited = waited_s(e, entered)
    if together := _same_call(e, sorted(entered), waited):
        return together
    free = [rank for rank in lacking if not _waits_in(e, rank, row, e.rows)]
    lacking = free or lacking  # a rank that waits elsewhere is a victim, too
    cut = _cut_off(e, entered)
    if cut and (left := [rank for rank in lacking if has_left(e, rank)]):
        lacking = left  # a rank that is still there has broken no connection
    absence = Absence(e, entered, lacking, cut)
    rules = (
        absence.wrong_group, absence.one_alone, absence.fewer_steps, absence.left,
        absence.elsewhere, absence.slow,
    )  # fmt: skip
    return next(filter(None, (rule() for rule in rules)), None) or absence.cause("never-arrived")


def _cut_off(e: Evidence, entered: Mapping[int, Entry]) -> bool:
    """Whether those who waited were not out of time but out of a connection."""
    said = [output.last_words(e.lines, rank) for rank in entered]
    return any(re.search("Connection (closed|reset) by peer", words) for words in said) and not any(
        "Timed out waiting" in words for words in said
    )


@dataclass(frozen=True)
class Absence:
    """Ranks that lack the collective in which the others are: why?"""

    e: Evidence
    entered: dict[int, Entry]
    lacking: list[int]
    cut: bool  # the others have lost their connections

    @property
    def rank(self) -> int:
        return self.lacking[0]

    @property
    def entry(self) -> Entry:
        return next(iter(self.entered.values()))

    @property
    def others(self) -> int:
        return next(iter(self.entered))

    def cause(self, kind: str, /, **facts: str) -> Cause:
        waited = waited_s(self.e, self.entered)
        common = {
            "who": named(self.lacking), "others": named(self.entered),
            "call": call_text(self.entry), "waited": seconds(waited),
            "lost": "" if seconds(waited) else "lost the connection",
            "elsewhere": elsewhere(self.e, self.lacking), "at": standing_at(self.e, self.rank),
        }  # fmt: skip
        return Cause(kind, self.rank, common | facts, call_name(self.entry), standing=True)

    def wrong_group(self) -> Cause | None:
        """The missing rank made this call on another group, against its habit."""
        last = in_call(self.e, self.rank)
        if last is None or last.group == self.entry.group or last.op != self.entry.op:
            return None
        wanted = expected(self.e, self.rank, last)
        if wanted is None or wanted[:2] != (self.entry.group, self.entry.op):
            return None
        return self.cause(
            "wrong-group", instead=call_text(last), name=call_name(self.entry),
            group=self._group(self.entry), other=self._group(last),
        )  # fmt: skip

    def _group(self, entry: Entry) -> str:
        members = self.e.ledgers[self.rank].groups.get(entry.group, ())
        return "all ranks" if entry.group in ("", "0") else named(members)

    def one_alone(self) -> Cause | None:
        """One rank entered it, inside an `if` on the rank."""
        e, entry = self.e, self.entry
        own_branch = any(
            (last := in_call(e, rank)) is not None and e.source.branches(place(entry), place(last))
            for rank in self.lacking
        )
        in_group = entry.group not in ("", "0") and any(
            has_made(e.ledgers[rank].entries, entry) for rank in self.lacking if rank in e.ledgers
        )  # for its members, an `if` on the rank is as it should be
        if len(self.entered) > 1 or own_branch or in_group:
            return None
        lines = [place(entry), *path_to_call(e, self.others)]
        guard = next(filter(None, map(e.source.guard, lines)), None)
        if guard is None:
            return None
        cause = self.cause("one-rank-only.others", few=named(self.entered), condition=guard.told)
        return replace(cause, rank=self.others)

    def fewer_steps(self) -> Cause | None:
        """The missing ranks have left the loop in which the others began one more step."""
        e, rank = self.e, self.rank
        counts = {r: steps(e.ledgers[r].entries, self.entry) for r in e.ledgers}
        mine = counts.get(rank, 0)
        most = max(counts.get(other, 0) for other in self.entered)
        over = all(has_left(e, one) for one in self.lacking)
        other = in_call(e, rank)
        lines = place(self.entry), None if other is None else place(other)
        past = None not in lines and lines[0] != lines[1]
        if not mine or most <= mine or not ((over and not left_in_the_middle(e, rank)) or past):
            return None
        sides = Sides(self.lacking, sorted(self.entered), self.entered)
        return uneven(e, sides, mine, call_text(other) if other and past else "")

    def left(self) -> Cause | None:
        return self.cause("exit-early") if all(has_left(self.e, r) for r in self.lacking) else None

    def elsewhere(self) -> Cause | None:
        """Where the missing rank waits tells the kind."""
        e, rank = self.e, self.rank
        if in_loader(e, rank):
            return self.cause("dataloader-worker")
        if in_function(e, rank, "new_group"):
            return self.cause("never-arrived.group")
        if rank in e.observed.paused:
            return self.cause("paused.rank", rank=str(rank))
        if message := exchange.no_message(e):
            return message
        if other := in_call(e, rank):
            return self.cause("different-collectives.instead", instead=call_text(other))
        return self.cause("never-arrived.cut") if self.cut else None

    def slow(self) -> Cause | None:
        """Late before, or not late for long, and at work."""
        mine = self.e.ledgers.get(self.rank)
        if mine is None or blocked_in(self.e, self.rank) or not mine.stack:
            return None
        waited = waited_s(self.e, self.entered)
        late_before = [lag for lag in self._lags()[-6:] if lag > max(0.05, 0.1 * waited)]
        slow = len(late_before) >= 2 or waited <= _SHORT_S
        return self.cause("straggler") if slow else None

    def _lags(self) -> list[float]:
        """By how much this rank was the last to enter each collective."""
        lags = []
        for row in self.e.rows:
            times = [entry.t for entry in row.entries.values() if entry is not None]
            mine = row.entries.get(self.rank)
            if mine is not None and len(times) > 1 and mine.t == max(times):
                lags.append(mine.t - min(times))
        return lags


def _by_exception(e: Evidence, found: Cause) -> Cause:
    """A rank that talks while it cleans up is there by an exception that nobody has seen."""
    last = None if found.rank is None else e.last(found.rank)
    if last is None or found.rank is None:
        return found
    mine = e.ledgers[found.rank]
    error = mine.handling if path_to_call(e, found.rank) else None
    if error is not None and not output.is_about_others(error.text):
        at = error.line
        facts = {
            "who": f"rank {found.rank}", "said": shortened(f"{error.type}: {error.text}"),
            "at": place_text(at.file, at.line, at.code) if at is not None else "",
            "call": call_text(last),
        }  # fmt: skip
        return Cause("exception.unprinted", found.rank, facts, found.collective, standing=True)
    word = e.source.cleanup(place(last))
    return replace(found, facts={**found.facts, "cleanup": word, "culprit": f"rank {found.rank}"})
