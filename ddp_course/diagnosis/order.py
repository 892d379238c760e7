"""All ranks came, but not with the same call: who left the order that the others kept.

the first row of calls that do not fit   of another operation, size or type (the run shows it),
                                         or at another line, for which nobody would notice
→ which rank came to it as nobody had before (`habits`), under which condition (`source`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ddp_course.diagnosis.evidence import (
    Evidence,
    path_to_call,
    place,
    waited_long,
    waited_s,
)
from ddp_course.diagnosis.habits import (
    before,
    breaks,
    expected,
    has_made,
    path,
    steps,
    steps_begun,
    texts,
    token,
)
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.words import (
    brought,
    call_name,
    call_place,
    call_text,
    code_of,
    counted,
    named,
    seconds,
)
from ddp_course.observe.align import Row, pairs
from ddp_course.observe.ledger import Entry

_FORWARD = "buffers before forward"  # of a forward that one rank makes alone


@dataclass(frozen=True)
class Sides:
    """Ranks that came to one place with two calls; `few` is the side that is looked at."""

    few: Sequence[int]
    many: Sequence[int]
    entered: Mapping[int, Entry]

    @property
    def mine(self) -> Entry:
        return self.entered[self.few[0]]

    @property
    def theirs(self) -> Entry:
        return self.entered[self.many[0]]

    @property
    def turned(self) -> Sides:
        return Sides(self.many, self.few, self.entered)


def different(e: Evidence, row: Row) -> Cause | None:
    """The calls of a row are not the same: say which rank left the others, and how."""
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    calls = {rank: (n.op, n.elements, n.dtypes) for rank, n in entered.items()}
    sides = _sides(entered, calls)
    if sides is None or e.ended == "finished" or not waited_long(e, entered):
        return None
    ordered = _first_to_leave(e, sides)
    both = [*ordered, *(one for one in (sides, sides.turned) if one not in ordered)]
    leaver = ordered[0].few[0] if len(ordered) == 1 else None
    for rule, ways in (
        (_alone_by_rank, both), (_other_order, ordered), (_skipped, ordered),
        (_on_condition, both), (_left_out, ordered), (_alone, both), (_uneven, ordered),
    ):  # fmt: skip
        if cause := next(filter(None, (rule(e, one) for one in ways)), None):
            alone = cause.kind == "one-rank-only"
            return cause if leaver is None or alone else replace(cause, rank=leaver)
    return _simply_different(e, sides)


def met_before(e: Evidence, until: Row) -> Cause | None:
    """Calls that met earlier, from different lines, and fitted by chance."""
    for row in e.rows:
        if row.t >= until.t:
            return None
        entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        if row.group != until.group or len({path(one) for one in entered.values()}) < 2:
            continue
        sides = _sides(entered, {rank: path(entry) for rank, entry in entered.items()})
        for one in _first_to_leave(e, sides) if sides else ():
            for rule in (_alone_by_rank, _met_skipped, _met_after_loop):
                if cause := rule(e, one):
                    return replace(cause, name=f"{cause.kind}.met")
    return None


def _sides(entered: Mapping[int, Entry], calls: Mapping[int, object]) -> Sides | None:
    """The rarest of these calls against the most frequent one; None if all are the same."""
    by_call: dict[object, list[int]] = {}
    for rank, call in calls.items():
        by_call.setdefault(call, []).append(rank)
    groups = sorted(by_call.values(), key=lambda ranks: (len(ranks), -ranks[0]))
    return Sides(groups[0], groups[-1], entered) if len(groups) > 1 else None


def _first_to_leave(e: Evidence, sides: Sides) -> list[Sides]:
    """The same from both sides; first from the one that came against all habit, if one did."""
    broken = [
        breaks(e, one.few[0], one.mine) and not breaks(e, one.many[0], one.theirs)
        for one in (sides, sides.turned)
    ]
    return [sides.turned] if broken == [False, True] else [sides] if broken[0] else [
        sides, sides.turned,
    ]  # fmt: skip


def _facts(e: Evidence, sides: Sides) -> dict[str, str]:
    return {
        "few": named(sides.few), "many": named(sides.many), "call": call_text(sides.mine),
        "met": call_text(sides.theirs), "name": call_name(sides.mine),
        "at": call_place(sides.mine), "waited": seconds(waited_s(e, sides.entered)),
    }  # fmt: skip


def _cause(e: Evidence, name: str, sides: Sides, **facts: str) -> Cause:
    all_facts = {**_facts(e, sides), **facts}
    return Cause(name, sides.few[0], all_facts, call_name(sides.mine), standing=True)


def other_roots(e: Evidence) -> Cause | None:
    """One call of one size, but from or to different ranks, or reduced in different ways."""
    for row in e.rows:
        entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        if len({entry.op for entry in entered.values()}) > 1:
            continue
        for name, fact in (("different-roots", _root), ("different-collectives.reduce", _reduce)):
            told = {rank: fact(entry) for rank, entry in entered.items()}
            sides = _sides(entered, told) if all(told.values()) else None
            if sides is not None:
                ours, others = told[sides.few[0]], told[sides.many[0]]
                return _cause(e, name, sides, ours=ours, others=others)
    return None


def message_too_long(e: Evidence) -> Cause | None:
    """A message that is larger than what the receiver has made ready for it: Gloo aborts there."""
    for row in pairs(e.ledgers):
        (sender, sent), (receiver, got) = (*row.entries.items(), (0, None), (0, None))[:2]
        if sent is not None and got is not None and sent.bytes > got.bytes:
            facts = {
                "few": named([receiver]), "many": named([sender]), "call": call_text(got),
                "met": call_text(sent), "ours": brought(got), "others": brought(sent),
            }  # fmt: skip
            name = "different-collectives.message"
            return Cause(name, receiver, facts, call_name(got), standing=True)
    return None


def _root(entry: Entry) -> str:
    return "" if entry.root is None else f"rank {entry.root}"


def _reduce(entry: Entry) -> str:
    return f"by {entry.reduce}" if entry.reduce else ""


def _alone_by_rank(e: Evidence, sides: Sides) -> Cause | None:
    """A call inside an `if` on the rank, where the others are not in its other branch."""
    guards = {e.source.guard(place(sides.entered[rank])) for rank in sides.few}
    guard = next(iter(guards))
    theirs = {e.source.guard(place(sides.entered[rank])) for rank in sides.many}
    apart = not e.source.branches(place(sides.mine), place(sides.theirs))
    if guard is None or None in guards or theirs != {None} or not apart:
        return None
    name = "one-rank-only.forward" if sides.mine.part == _FORWARD else "one-rank-only"
    return _cause(e, name, sides, condition=guard.told)


def _other_order(e: Evidence, sides: Sides) -> Cause | None:
    """At one line, sizes that both sides have brought there before: in another order."""
    mine, theirs = sides.mine, sides.theirs
    if place(mine) != place(theirs) or mine.op != theirs.op or mine.line is None:
        return None
    for rank, wanted in ((sides.few[0], theirs), (sides.many[0], mine)):
        known = [one for one in e.ledgers[rank].entries if place(one) == place(wanted)]
        if not any((one.elements, one.dtypes) == (wanted.elements, wanted.dtypes) for one in known):
            return None
    return _cause(e, "other-order", sides, ours=brought(mine), others=brought(theirs))


def _skipped(e: Evidence, sides: Sides) -> Cause | None:
    """A rank that began the next step where the others went on with this one."""
    mine, theirs = sides.mine, sides.theirs
    made = before(e.ledgers[sides.few[0]], mine)
    if not made or not breaks(e, sides.few[0], mine) or breaks(e, sides.many[0], theirs):
        return None
    again = has_made(made, mine) and has_made(made, theirs) and _line(mine) <= _line(theirs)
    here, there = _path(mine), _path(theirs)
    if (
        not again
        or not e.source.in_same_loop(here, there)
        or not e.source.in_same_loop(there, here)
    ):
        return None
    return _cause(e, "skipped-step", sides, last=call_place(made[-1]))


def _left_out(e: Evidence, sides: Sides) -> Cause | None:
    """A rank that left out a call which it had always made before its next one."""
    mine, theirs = sides.mine, sides.theirs
    wanted = expected(e, sides.few[0], mine)
    if wanted != token(theirs) or not breaks(e, sides.few[0], mine):
        return None
    if not has_made(before(e.ledgers[sides.many[0]], theirs), mine) or _line(mine) <= _line(theirs):
        return None
    if not e.source.in_same_loop(_path(mine), _path(theirs)):
        return None
    return replace(_cause(e, "skipped-call", sides), collective=call_name(theirs))


def _line(entry: Entry) -> int:
    return entry.line.line if entry.line is not None else 0


def _met_skipped(e: Evidence, sides: Sides) -> Cause | None:
    return None if _by_design(e, sides) else _skipped(e, sides)


def _on_condition(e: Evidence, sides: Sides) -> Cause | None:
    """A call inside an `if` that was not the same on all ranks, in a step that all make."""
    if not _both_there(e, sides):
        return None
    here, there = (path_to_call(e, rank) for rank in (sides.few[0], sides.many[0]))
    again = any(has_made(e.ledgers[rank].entries, sides.mine) for rank in sides.many)
    test = e.source.condition_apart(*_parting(here, there))
    if not test or not _in_same_loop(e, sides, here, there):
        return None
    if again and not _in_same_loop(e, sides, there, here):
        return None
    return _cause(e, "different-collectives.condition", sides, test=test)


def _parting(
    here: list[tuple[str, int]], there: list[tuple[str, int]]
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Two paths, innermost first, from where they part: the callers' conditions come first."""
    common = 0
    while common < min(len(here), len(there)) and here[-1 - common] == there[-1 - common]:
        common += 1
    return here[: len(here) - common][::-1], there[: len(there) - common][::-1]


def _both_there(e: Evidence, sides: Sides) -> bool:
    return all(e.last(rank) is sides.entered[rank] for rank in (sides.few[0], sides.many[0]))


def _in_same_loop(
    e: Evidence, sides: Sides, here: list[tuple[str, int]], there: list[tuple[str, int]]
) -> bool:
    """Whether one path stands in the innermost loop around the other, or neither in any."""
    inside = e.source.in_same_loop(here, there)
    if inside is not None:
        return inside
    made = (
        (e.ledgers[rank].entries, sides.entered[rank]) for rank in (sides.few[0], sides.many[0])
    )
    return bool(here and there) and all(steps(*one) < 2 for one in made)


def _alone(e: Evidence, sides: Sides) -> Cause | None:
    """A call at a line where no other rank ever called, in a step that all make."""
    mine, theirs = sides.mine, sides.theirs
    if not _both_there(e, sides) or mine.part:
        return None
    here, there = (path_to_call(e, rank) for rank in (sides.few[0], sides.many[0]))
    inside_ddp = (theirs.part or "").startswith(("gradient", "bucket", "buffers"))
    common = inside_ddp or has_made(e.ledgers[sides.few[0]].entries, theirs)
    again = any(has_made(e.ledgers[rank].entries, mine) for rank in sides.many)
    if again or not common or not _in_same_loop(e, sides, here, there):
        return None
    return _cause(e, "one-rank-only.unconditional", sides)


def _uneven(e: Evidence, sides: Sides) -> Cause | None:
    """A rank that left a loop in which the others began one more step."""
    mine, theirs = sides.mine, sides.theirs
    made, others = (
        before(e.ledgers[rank], entry)
        for rank, entry in ((sides.few[0], mine), (sides.many[0], theirs))
    )
    count = steps(made, theirs)
    if not count or e.source.branches(place(mine), place(theirs)):
        return None
    left = breaks(e, sides.few[0], mine)
    more = steps_begun(others, theirs) > count
    seen = not left and has_made(others, mine) and not _goes_on(e, theirs)
    if not more or seen:
        return None
    return uneven(e, sides, count, call_text(mine))


def _goes_on(e: Evidence, entry: Entry) -> bool:
    """Whether all ranks were at this call's line in the row before it."""
    rows = [row for row in e.rows if (row.group, row.n) == (entry.group, entry.n - 1)]
    calls = [call for row in rows for call in row.entries.values()]
    return bool(calls) and all(call is not None and call.line == entry.line for call in calls)


def uneven(e: Evidence, sides: Sides, count: int, went_on: str) -> Cause:
    """Some ranks made fewer steps; with no call of their own in `sides`, they have none left."""
    theirs = sides.theirs
    mine, ledger = sides.entered.get(sides.few[0]), e.ledgers[sides.few[0]]
    passes = (mine or ledger).passes if theirs.part else 0  # of DDP's forwards
    gradient = (theirs.part or "").startswith("gradient") and not ledger.dropped
    if passes and not gradient:
        count = passes
    facts = {
        "few": named(sides.few), "many": named(sides.many), "steps": counted(count, "step"),
        "passes": f"{passes} forwards" if gradient and passes > count else "",
        "rounds": counted(count, "round"), "at": call_place(theirs), "next": went_on,
        "name": call_name(theirs), "waited": seconds(waited_s(e, sides.many)),
        "over": e.source.loops_over(place(theirs)), "done": "" if went_on else "was done",
    }  # fmt: skip
    if len(sides.few) > 1 and not went_on:
        facts["done"] = "were done"
    over_model = any(
        f"{word}(" in facts["over"] for word in ("parameters", "buffers", "state_dict")
    )
    name = "different-models.loop" if over_model else "uneven-steps"
    here, there = (path_to_call(e, rank) for rank in (sides.few[0], sides.many[0]))
    facts["test"] = e.source.condition_apart(*_parting(here, there))
    return Cause(name, sides.few[0], facts, call_name(theirs), standing=True)


def _met_after_loop(e: Evidence, sides: Sides) -> Cause | None:
    """A call after a loop that met one more call of those who were still in the loop."""
    mine, theirs = sides.mine, sides.theirs
    if _by_design(e, sides):
        return None
    made, others = (
        before(e.ledgers[rank], entry)
        for rank, entry in ((sides.few[0], mine), (sides.many[0], theirs))
    )
    count, left = steps(made, theirs), breaks(e, sides.few[0], mine)
    seen = not left and has_made(others, mine) and not _goes_on(e, theirs)
    if not 0 < count < steps_begun(others, theirs) or seen:
        return None
    return uneven(e, sides, count, call_text(mine))


def _by_design(e: Evidence, sides: Sides) -> bool:
    """Whether two lines are the two sides of a condition, as a script may well have them."""
    mine, theirs = place(sides.mine), place(sides.theirs)
    return e.source.branches(mine, theirs) or e.source.alternatives(mine, theirs)


def _simply_different(e: Evidence, sides: Sides) -> Cause:
    mine, theirs = sides.mine, sides.theirs
    same_op = mine.op == theirs.op
    facts = {"ours": brought(mine) if same_op else "", "others": brought(theirs) if same_op else ""}
    if any(code == -6 for code in e.codes.values()):
        facts["waited"] = ""
    name = "different-collectives"
    if same_op and mine.line == theirs.line:
        name += ".tensors"
    return replace(_cause(e, name, sides, **facts), collective=call_name(theirs))


def _path(entry: Entry) -> list[tuple[str, int]]:
    return [(file, line) for file, line in path(entry)]


def swapped(e: Evidence) -> Cause | None:
    """Calls of one size that two ranks made in opposite order: nothing fails, the numbers mix."""
    for one, two in zip(e.rows, e.rows[1:], strict=False):
        if one.group != two.group or None in (*one.entries.values(), *two.entries.values()):
            continue
        first = {rank: entry for rank, entry in one.entries.items() if entry is not None}
        then = {rank: entry for rank, entry in two.entries.items() if entry is not None}
        if first.keys() != then.keys() or len({texts(entry) for entry in first.values()}) != 2:
            continue
        crossed = all(
            {texts(first[rank]), texts(then[rank])} == {texts(entry) for entry in first.values()}
            and not e.source.alternatives(place(first[rank]), place(then[rank]))
            for rank in first
        )
        sides = _sides(first, {rank: texts(entry) for rank, entry in first.items()})
        if crossed and sides is not None and not any(map(_root, first.values())):
            ours, others = (_told_apart(one.mine, one.theirs) for one in (sides, sides.turned))
            return _cause(e, "other-order.mixed", sides, ours=ours, others=others)
    return None


def _told_apart(mine: Entry, theirs: Entry) -> str:
    """The innermost line by which a call differs from another one."""
    known = set(texts(theirs))
    return code_of(next((code for code in texts(mine) if code not in known), ""))
