"""Who waits for whom: the ranks' ledgers, aligned, and the rank that lacks what the others wait in.

Each rule answers with a Diagnosis, or None if this is not what happened.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddp_course.diagnosis.clues import (
    branches,
    brought,
    call_name,
    call_text,
    code_of,
    condition_apart,
    counted_times,
    elsewhere,
    gave_up,
    guarded_apart,
    habit_broken,
    has_left,
    has_seen,
    in_cleanup,
    in_function,
    in_loader,
    in_same_loop,
    in_seconds,
    is_past,
    is_slow,
    left_in_the_middle,
    loop_over,
    named,
    other_call,
    own_frame,
    path_to_call,
    place_text,
    rank_guard,
    shortened,
    someone_failed,
    standing,
    standing_at,
    steps_at,
    threshold,
    up_to,
    waited_s,
    waiting_for,
    waits_on_handle,
)
from ddp_course.diagnosis.findings import Diagnosis, Evidence
from ddp_course.observe import ledger
from ddp_course.observe import output as failures
from ddp_course.observe.ledger import Entry, Row

_ALONE = (
    "take the collective out of the `if`, so that all ranks call it; what one rank does alone "
    "(saving, printing, evaluating model.module) must not communicate"
)
_EVEN = (
    "give all ranks equally many batches (DistributedSampler), use Join, or let all ranks decide "
    "together when to stop; who skips a batch, or sums over another number of them, makes fewer "
    "steps, too"
)
_UNLIKE = "different-collectives", "uneven-steps", "one-rank-only"  # an earlier row may be why
GROUPS = (
    "every rank must call new_group for every group, its own or not, with the same ranks and in "
    "the same order; torch numbers them by counting the calls"
)
_SAME_ROOT = (
    "all ranks are in the call: it must have the same src or dst, the same group and the same "
    "number of tensors on each"
)


def crossed_pairs(e: Evidence) -> Diagnosis | None:
    """Ranks that wait for each other's messages, in a circle."""
    talks = {rank: talk for rank in range(e.ranks) if (talk := _talk(e, rank))}
    circle = _circle({rank: talk.peer for rank, talk in talks.items()})
    if not circle and len(talks) > 1 and all(talk.peer is None for talk in talks.values()):
        circle = sorted(talks) if len({talk.direction for talk in talks.values()}) == 1 else []
    if not circle or waited_s(e, circle) < threshold(e):
        return None
    told = "; ".join(f"rank {rank} is in {talks[rank].told}" for rank in circle)
    directions = {talks[rank].direction for rank in circle}
    end = {
        frozenset({"recv"}): "and none of them sends what another waits for",
        frozenset({"send"}): "and none of them receives what another sends",
    }.get(frozenset(directions), "and no two of them fit together")
    return Diagnosis(
        "crossed-pairs",
        f"{named(circle)} wait for each other: {told}, {end}; "
        f"they waited {in_seconds(waited_s(e, circle))}",
        "every send needs its recv on the peer, with the same tag; let one side send first and the "
        "other receive first, or begin both at once: isend and irecv, or batch_isend_irecv",
        "10 What if two ranks wait for each other?",
        circle[0],
        talks[circle[0]].direction,
        evidence=standing(e),
    )


@dataclass(frozen=True)
class _Talk:
    """A message that a rank waits for, or waits to get rid of."""

    direction: str
    peer: int | None
    told: str


def _talk(e: Evidence, rank: int) -> _Talk | None:
    """The point-to-point call in which a rank is blocked, or was when it gave up."""
    mine = e.ledgers.get(rank)
    if mine is None or mine.why == "exit":
        return None
    inside = in_function(mine, ("send", "recv", "batch_isend_irecv"))
    last = mine.entries[-1] if mine.entries else None
    if waits_on_handle(e, rank) and (unanswered := _unanswered(e, rank)):
        last, inside = unanswered, "wait"
    if last is not None and last.p2p is not None and (inside or gave_up(mine)):
        peer = None if last.p2p.peer == ledger.ANY_RANK else last.p2p.peer
        return _Talk(last.p2p.direction, peer, call_text(last))
    if not inside:
        return None
    own = own_frame(mine, e)
    place = f" ({place_text(own.file, own.line, own.code)})" if own else ""
    return _Talk(inside, None, f"{inside}{place}")


def _unanswered(e: Evidence, rank: int) -> Entry | None:
    """The message begun by this rank of which its peer knows nothing; a recv before a send."""
    open_rows = [row for row in ledger.pairs(e.ledgers) if row.verdict == "missing"]
    mine = [entry for row in open_rows if (entry := row.entries.get(rank)) is not None]
    return min(mine, key=lambda n: (n.p2p is not None and n.p2p.direction, n.t), default=None)


def _circle(peers: Mapping[int, int | None]) -> list[int]:
    for start in sorted(peers):
        path = [start]
        while (after := peers.get(path[-1])) is not None and after in peers:
            if after in path:
                return path[path.index(after) :]
            path.append(after)
    return []


def standstill(e: Evidence) -> Diagnosis | None:
    """The first collective that some ranks entered and others did not, or not alike."""
    rows = [row for row in e.rows if row.verdict != "same"]
    rows = [row for row in rows if any(row.entries.values())]
    if not rows:
        return _too_late(e) or _waits_for_message(e) or _same_call(e, [])
    row = _root(e, rows)
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    if apart := _other_groups(e, row, entered):
        return apart
    lacking = sorted(rank for rank, entry in row.entries.items() if entry is None)
    found = _missing(e, entered, lacking) if lacking else _different(e, entered)
    if found is None or found.kind not in _UNLIKE:
        return found
    return _astray(e, row, found) or _by_exception(e, found)


def _root(e: Evidence, rows: list[Row]) -> Row:
    """The first row that lacks ranks; if those wait elsewhere, the row that they wait in."""
    row, seen = min(rows, key=lambda row: row.t), list[Row]()
    while row not in seen:
        seen.append(row)
        lacking = [rank for rank, entry in row.entries.items() if entry is None]
        inside = {rank: _waits_in(e, rank, row, rows) for rank in lacking}
        row = next((other for other in inside.values() if other is not None), row)
        if not all(inside.values()):
            return seen[-1]
    for one in seen[seen.index(row) :]:  # a circle: who has left its habit?
        lacking = [rank for rank, entry in one.entries.items() if entry is None]
        wanted = next(entry for entry in one.entries.values() if entry is not None)
        if any(habit_broken(e.ledgers[rank], wanted) for rank in lacking):
            return one
    return seen[0]


def _waits_in(e: Evidence, rank: int, row: Row, rows: list[Row]) -> Row | None:
    """The row of another group in which a rank waits for somebody."""
    if rank not in e.ledgers or not other_call(e, rank):
        return None
    last = e.ledgers[rank].entries[-1]
    others = (one for one in rows if one.group != row.group and one.entries.get(rank) is last)
    return next(others, None)


def _other_groups(e: Evidence, row: Row, entered: Mapping[int, Entry]) -> Diagnosis | None:
    """Ranks that mean different ranks by one process group."""
    if waited_s(e, entered) < threshold(e) and not someone_failed(e):
        return None
    last = {mine.entries[-1].group for mine in e.ledgers.values() if mine.entries}
    for name in (row.group, *sorted(last - {row.group})):
        sides: dict[tuple[int, ...], list[int]] = {}
        for rank, mine in e.ledgers.items():
            if name in mine.groups:
                sides.setdefault(tuple(mine.groups[name]), []).append(rank)
        if len(sides) > 1:
            told = "; ".join(f"{named(who)} made it of {named(of)}" for of, who in sides.items())
            return Diagnosis(
                "different-groups",
                f"the ranks mean different things by process group {name[:12]}: {told}; in it "
                f"they did not find each other{_in_group(e, name)}",
                GROUPS,
                "10 Must all ranks bring the same?",
                evidence=standing(e),
            )
    return None


def _in_group(e: Evidence, name: str) -> str:
    calls = [n for mine in e.ledgers.values() for n in mine.entries[-1:] if n.group == name]
    return f", as in {call_text(calls[0])}" if calls else ""


def inside_join(e: Evidence) -> Diagnosis | None:
    """A collective of the learner's own that met one of Join's: Join answers only for DDP."""
    if e.ended not in ("failed", "time-out"):
        return None
    for row in e.rows:
        here = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        joins = [r for r, n in here.items() if n.part is not None and n.part.endswith("for Join")]
        own = [rank for rank, n in here.items() if n.part is None and n.line is not None
               and ".join(" not in n.line.code]  # fmt: skip
        if joins and own:
            mine, theirs = here[own[0]], here[joins[0]]
            return Diagnosis(
                "different-collectives",
                f"inside Join, {named(own)} called {call_text(mine)}, and it met {theirs.op} "
                f"#{theirs.n} of {named(joins)} ({theirs.part}): for a rank without inputs Join "
                "answers only what DDP itself sends, and from there on the calls did not fit",
                "call it after the `with model.join()`, or under DDP only; what must be averaged "
                "in the loop can be kept and reduced once at the end",
                "03 Can a rank without data still take part?",
                own[0],
                call_name(mine),
                evidence=standing(e),
            )
    return None


def _too_late(e: Evidence) -> Diagnosis | None:
    """All came to the last call, but somebody after the others had given up."""
    if not e.rows:
        return None
    row = e.rows[-1]
    times = {rank: entry.t for rank, entry in row.entries.items() if entry is not None}
    last = {rank: failures.last_words(e.lines, rank) for rank in times}
    limits = [float(said[1]) for text in last.values()
              if (said := re.search(r"Timed out waiting (\d+)ms", text))]  # fmt: skip
    if not limits or len(times) < 2:
        return None
    first, limit_s = min(times.values()), min(limits) / 1000
    late = sorted(rank for rank, t in times.items() if t - first >= 0.9 * limit_s)
    entry = row.entries[late[0]] if late else None
    if entry is None:
        return None
    before = sorted(times.keys() - set(late))
    return Diagnosis(
        "straggler",
        f"{named(late)} came to {call_text(entry)} {in_seconds(times[late[0]] - first)} after the "
        f"first: too late, for {named(before)} waited only {in_seconds(limit_s)} and gave up",
        "allow for the longest work that is legitimate (init_process_group(…, timeout=…)), or "
        "give that rank less to do",
        "03 How long may a rank wait?",
        late[0],
        call_name(entry),
        evidence=standing(e),
    )


def _same_call(e: Evidence, past: list[int], waited: float = 0.0) -> Diagnosis | None:
    """Ranks that do not get out of a call that all entered: they differ in what is not recorded.

    past  the ranks that have come out of it, and wait elsewhere
    """
    for row in reversed(e.rows):
        inside = [r for r, n in row.entries.items() if n is not None and n is _waiting(e, r)]
        entry = row.entries[inside[0]] if inside else None
        if entry is None or row.verdict != "same" or entry.part:
            continue
        if set(inside) | set(past) != set(row.entries) or len(inside) + len(past) < 2:
            continue
        waited = max(waited, waited_s(e, inside))
        if waited < threshold(e) and not someone_failed(e):
            return None
        came = f"; {named(past)} came out of it, and went on" if past else ""
        return Diagnosis(
            "stuck",
            f"{named(inside)} waited {in_seconds(waited)} in {call_text(entry)}, which every rank "
            f"had entered{came}: there they do not want the same",
            _SAME_ROOT,
            "10 Must all ranks bring the same?",
            inside[0] if past else None,
            call_name(entry),
            evidence=standing(e),
        )
    return None


def _waiting(e: Evidence, rank: int) -> Entry | None:
    """The collective in which a rank stands."""
    mine = e.ledgers.get(rank)
    if mine is None or not path_to_call(mine, e) or not other_call(e, rank):
        return None
    return mine.entries[-1]


def _by_exception(e: Evidence, found: Diagnosis) -> Diagnosis:
    """A rank that talks while it cleans up is there by an exception that nobody has seen."""
    mine = None if found.rank is None else e.ledgers.get(found.rank)
    error = mine.handling if mine is not None and path_to_call(mine, e) else None
    if mine is not None and error is not None and not failures.is_about_others(error.text):
        at = ""
        if error.line is not None:
            at = f" at {place_text(error.line.file, error.line.line, error.line.code)}"
        return replace(
            found,
            kind="exception",
            sentence=f"rank {found.rank}: {shortened(f'{error.type}: {error.text}')}{at}, not "
            f"printed yet: handling it, the rank went on to {call_text(mine.entries[-1])}, where "
            f"it waits for the others; {found.sentence}",
            remedy=f"mend what rank {found.rank} says; let no `except` or `finally` wait for other "
            "ranks before the error is printed",
            lesson="10 Who failed first, and who is loudest?",
        )
    word = in_cleanup(e, mine.entries[-1]) if mine is not None and mine.entries else ""
    if not word:
        return found
    return replace(
        found,
        sentence=f"{found.sentence}. Rank {found.rank}'s call stands in `{word}`: an exception "
        "that is not printed yet may have brought it there",
        remedy=f"print the exception before anything that waits for other ranks, and let no "
        f"`{word}` communicate; else: {found.remedy}",
    )


def _astray(e: Evidence, until: Row, found: Diagnosis) -> Diagnosis | None:
    """A call inside an `if` on the rank that met another call of the rest, and seemed to fit."""
    for row in e.rows:
        if row.t >= until.t:
            return None
        here = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        if row.group != until.group or len(here) < 2:
            continue
        for rank, mine in here.items():
            others = {r: n for r, n in here.items() if n.line != mine.line}
            alone = {guarded_apart(e, mine, theirs) for theirs in others.values()}
            if not others or "" in alone:
                continue
            few = sorted(here.keys() - others.keys())
            theirs = next(iter(others.values()))
            return Diagnosis(
                "one-rank-only",
                f"{named(few)} alone entered {call_text(mine)}, {alone.pop()}; it met "
                f"{call_text(theirs)} of {named(others)}, and from there on the calls did not fit: "
                f"{found.sentence}",
                _ALONE,
                _lesson_for_alone(mine),
                rank,
                call_name(mine),
                evidence=found.evidence,
            )
        if uneven := _met_by_chance(e, here, found):
            return uneven
    return None


def _met_by_chance(e: Evidence, here: Mapping[int, Entry], found: Diagnosis) -> Diagnosis | None:
    """The call after a loop that met one more call of those who were still in the loop."""
    first = next(iter(here))
    sides = [[r for r in here if (here[r].line == here[first].line) is same]
             for same in (True, False)]  # fmt: skip
    for few, many in (sides, sides[::-1]) if all(sides) else ():
        mine, theirs = here[few[0]], here[many[0]]
        before = {r: up_to(e.ledgers[r], here[r]) for r in (few[0], many[0])}
        steps = steps_at(before[few[0]], theirs)
        seen = has_seen(before[many[0]], mine) and not _goes_on(e, theirs)
        if 0 < steps < steps_at(before[many[0]], theirs) and not seen and not (
            branches(e, mine, theirs)
        ):  # fmt: skip
            return Diagnosis(
                "uneven-steps",
                f"{named(few)} made {counted_times(steps, 'step')} (`{_code(theirs)}`) and went on "
                f"to {call_text(mine)}; it met one step more of {named(many)}, "
                f"{call_text(theirs)}, for they are of one size, and from there on the calls did "
                f"not fit: {found.sentence}",
                _EVEN,
                "03 What if a rank runs out of data?",
                few[0],
                call_name(theirs),
                evidence=found.evidence,
            )
    return None


def _code(entry: Entry) -> str:
    return code_of(entry.line.code) if entry.line is not None else ""


def _missing(e: Evidence, entered: dict[int, Entry], lacking: list[int]) -> Diagnosis | None:
    waited = waited_s(e, entered)
    if waited < threshold(e) and not someone_failed(e):
        return None
    entry = next(iter(entered.values()))
    if together := _same_call(e, sorted(entered), waited):
        return together
    free = [rank for rank in lacking if not _waits_in(e, rank, _row_of(e, entered), e.rows)]
    lacking = free or lacking  # who waits elsewhere is a victim, too
    cut = _cut_off(e, entered)
    if cut and (left := [rank for rank in lacking if has_left(e, rank)]):
        lacking = left  # who is still there has broken no connection
    call, rank = call_text(entry), lacking[0]
    their = f"{named(entered)} waited {in_seconds(waited)}"
    if waited < 0.05:
        their = f"{named(entered)} lost the connection"
    common: dict[str, Any] = {
        "rank": rank, "collective": call_name(entry), "evidence": standing(e),
    }  # fmt: skip
    never = f"{named(lacking)} never entered {call}; {their}"
    elsewhere_too = any(_has_its_own(e, rank, entry) for rank in lacking) or (
        entry.group not in ("", "0")  # for its members, an `if` on the rank is as it should be
        and any(has_seen(e.ledgers[rank], entry) for rank in lacking if rank in e.ledgers)
    )
    if len(entered) == 1 and not elsewhere_too and (alone := rank_guard(e, entered)):
        only = next(iter(entered))
        return Diagnosis(
            "one-rank-only",
            f"rank {only} alone entered {call}, {alone}"
            f"{f', and waited {in_seconds(waited)}' if waited >= 0.05 else ''}; "
            f"{named(lacking)} never did{elsewhere(e, lacking)}",
            _ALONE,
            _lesson_for_alone(entry),
            **{**common, "rank": only},
        )
    steps = steps_at(e.ledgers[rank], entry) if rank in e.ledgers else 0
    theirs = max((steps_at(e.ledgers[r], entry) for r in entered if r in e.ledgers), default=0)
    over = all(has_left(e, r) for r in lacking)
    past = (over and not left_in_the_middle(e, rank)) or is_past(e, rank, entry)
    if steps and theirs > steps and past:
        other = other_call(e, rank)
        went_on = f" and went on to {other}" if other else ""
        return _uneven(e, lacking, entered, entry, steps, went_on, common)
    if over:
        return Diagnosis(
            "exit-early",
            f"{never}: {named(lacking)} had left with exit code 0 before",
            "find out why it left (sys.exit, os._exit, return, an exception that was caught); to "
            "torchrun exit code 0 is success, so it lets the others wait",
            "03 May a rank stop when it likes?",
            **common,
        )
    if in_loader(e, rank):
        return Diagnosis(
            "dataloader-worker",
            f"{never}; rank {rank} waited for a worker of its DataLoader{standing_at(e, rank)}",
            "num_workers=0 shows whether it is the worker; DataLoader(timeout=…) turns the wait "
            "into an error; a lock held when workers are forked is a usual reason: "
            "multiprocessing_context='spawn'",
            "10 What if the rank at fault waits, too?",
            **common,
        )
    if rank in e.ledgers and in_function(e.ledgers[rank], ("new_group",)):
        return Diagnosis(
            "never-arrived",
            f"{never}{elsewhere(e, lacking)}",
            GROUPS,
            "10 What does a rank know that waits?",
            **common,
        )
    if rank in e.observed.paused:
        return Diagnosis("paused", never, "resume it: run.resume(rank)", **common)
    if message := _waits_for_message(e):
        return message
    other = other_call(e, rank)
    if other:
        return Diagnosis(
            "different-collectives",
            f"{never}; rank {rank} was in {other} instead",
            "bring all ranks to the same collectives in the same order",
            "10 Must all ranks bring the same?",
            **common,
        )
    if cut:
        return Diagnosis(
            "never-arrived",
            f"{never}{elsewhere(e, lacking)}, alive, but its connections were closed",
            "who ends its process group (destroy_process_group, or a group that is deleted) must "
            "have no collective left to take part in, on any rank",
            "03 May a rank stop when it likes?",
            **common,
        )
    if is_slow(e, rank, waited):
        return Diagnosis(
            "straggler",
            f"rank {rank} is slow, not stuck: it had not yet entered {call} when {their}; it was "
            f"still at work{standing_at(e, rank)}",
            "allow for the longest work that is legitimate (init_process_group(…, timeout=…)), or "
            "give that rank less to do",
            "03 How long may a rank wait?",
            **common,
        )
    return Diagnosis(
        "never-arrived",
        f"{never}{elsewhere(e, lacking)}",
        "look at what that rank does instead; if it is only slow, allow more time: "
        "init_process_group(…, timeout=…)",
        "10 What does a rank know that waits?",
        **common,
    )


def _row_of(e: Evidence, entered: Mapping[int, Entry]) -> Row:
    rank, entry = next(iter(entered.items()))
    return next(row for row in e.rows if row.entries.get(rank) is entry)


def _has_its_own(e: Evidence, rank: int, entry: Entry) -> bool:
    """Whether a rank is in a call that another branch of the script has for it."""
    return bool(other_call(e, rank)) and branches(e, entry, e.ledgers[rank].entries[-1])


def _cut_off(e: Evidence, entered: Mapping[int, Entry]) -> bool:
    """Whether those who waited were not out of time but out of a connection."""
    said = [failures.last_words(e.lines, rank) for rank in entered]
    return any(re.search("Connection (closed|reset) by peer", words) for words in said) and not any(
        "Timed out waiting" in words for words in said
    )


def _different(e: Evidence, entered: dict[int, Entry]) -> Diagnosis | None:
    """Every rank came, but not with the same call."""
    groups: dict[Any, list[int]] = {}
    for rank, entry in entered.items():
        groups.setdefault((entry.op, entry.elements, entry.dtypes), []).append(rank)
    if len(groups) < 2:
        return None
    if e.ended == "finished" or (waited_s(e, entered) < threshold(e) and not someone_failed(e)):
        return None
    sides = sorted(groups.values(), key=lambda ranks: (len(ranks), -ranks[0]))
    odd, most = sides[0], sides[-1]
    a, b = entered[odd[0]], entered[most[0]]
    common: dict[str, Any] = {
        "rank": odd[0], "collective": call_name(b), "evidence": standing(e),
    }  # fmt: skip
    for few, many in ((odd, most), (most, odd)):  # with two ranks either may be the odd one
        mine, theirs = entered[few[0]], entered[many[0]]
        if (alone := rank_guard(e, {r: entered[r] for r in few})) and not (
            rank_guard(e, {r: entered[r] for r in many}) or branches(e, mine, theirs)
        ):
            both_s = waited_s(e, entered)
            waited = f"; they waited {in_seconds(both_s)}" if both_s >= 0.05 else ""
            return Diagnosis(
                "one-rank-only",
                f"{named(few)} alone entered {call_text(mine)}, {alone}; {named(many)} "
                f"went on to {call_text(theirs)}{waited}",
                _ALONE,
                _lesson_for_alone(mine),
                **{**common, "rank": few[0], "collective": call_name(mine)},
            )
    broken = [
        rank
        for rank, other in ((odd[0], b), (most[0], a))
        if habit_broken(up_to(e.ledgers[rank], entered[rank]), other)
    ]
    both_there = all(e.ledgers[r].entries[-1] is entered[r] for r in (odd[0], most[0]))
    for rule in (_on_condition, _without_the_rest) if both_there else ():
        for few, many in ((odd, most), (most, odd)):
            if told := rule(e, few, many, entered):
                kind, sentence, remedy = told
                first = broken[0] if len(broken) == 1 else few[0]
                common |= {"rank": first, "collective": call_name(entered[few[0]])}
                lesson = "10 Must all ranks bring the same?"
                return Diagnosis(kind, sentence, remedy, lesson, **common)
    for few, many in ((odd, most), (most, odd)):
        mine, theirs = entered[few[0]], entered[many[0]]
        before = {r: up_to(e.ledgers[r], entered[r]) for r in (few[0], many[0])}
        steps = steps_at(before[few[0]], theirs)
        if (len(broken) == 1 and broken != few[:1]) or branches(e, mine, theirs):
            continue
        seen = not broken and has_seen(before[many[0]], mine) and not _goes_on(e, theirs)
        if steps and steps_at(before[many[0]], theirs) > steps and not seen:
            common |= {"rank": few[0], "collective": call_name(theirs)}
            went_on = f" and went on to {call_text(mine)}"
            waiting = {r: entered[r] for r in many}
            return _uneven(e, few, waiting, theirs, steps, went_on, common)
    if a.op != b.op or a.line != b.line:
        sizes = [f" with {brought(entered, s)}" if a.op == b.op else "" for s in (odd, most)]
        calls = (
            f"{named(odd)} called {call_text(a)}{sizes[0]} where {named(most)} called "
            f"{call_text(b)}{sizes[1]}"
        )
    else:
        each = "; ".join(f"{named(side)} brought {brought(entered, side)}" for side in sides)
        calls = f"in {call_text(b)}, {each}"
    outcome = "" if any(
        code == -signal.SIGABRT for code in e.codes.values()
    ) else f"; they waited {in_seconds(waited_s(e, entered))}"  # fmt: skip
    return Diagnosis(
        "different-collectives",
        f"the ranks came to the same place with different collectives: {calls}{outcome}",
        "bring all ranks to the same collective, in the same order"
        if a.op != b.op or a.line != b.line
        else "give it the same shape and dtype on every rank: pad, or gather the sizes first "
        "(all_gather_object takes anything)",
        "10 Must all ranks bring the same?",
        **common,
    )


_Told = tuple[str, str, str]  # kind, sentence, remedy


def _on_condition(
    e: Evidence, few: list[int], many: list[int], entered: Mapping[int, Entry]
) -> _Told | None:
    """A call inside an `if` that was not the same on all ranks, in a step that all make."""
    mine, theirs = e.ledgers[few[0]], e.ledgers[many[0]]
    again = any(has_seen(e.ledgers[rank], entered[few[0]]) for rank in many)
    test = condition_apart(e, mine, theirs)
    if not test or not in_same_loop(e, mine, theirs):
        return None
    if again and not in_same_loop(e, theirs, mine):
        return None
    return (
        "different-collectives",
        f"{named(few)} called {call_text(entered[few[0]])}, inside `{test}`; "
        f"{_went_on(e, many, entered)}",
        f"what `{test}` asks must have one answer on all ranks: let one rank decide, and "
        "broadcast it; or take the collective out of the `if`",
    )


def _without_the_rest(
    e: Evidence, few: list[int], many: list[int], entered: Mapping[int, Entry]
) -> _Told | None:
    """A call at a line where no other rank ever called, in a step that all make."""
    mine, theirs = e.ledgers[few[0]], e.ledgers[many[0]]
    a, b = entered[few[0]], entered[many[0]]
    common = has_seen(mine, b) or (b.part or "").startswith(("gradient", "bucket", "buffers"))
    again = any(has_seen(e.ledgers[rank], a) for rank in many)
    if a.part or again or not common or not in_same_loop(e, mine, theirs):
        return None
    return (
        "one-rank-only",
        f"{named(few)} alone entered {call_text(a)}, which no other rank calls; "
        f"{_went_on(e, many, entered)}",
        "call it on all ranks or on none; what one rank does alone (saving, printing, "
        "evaluating model.module) must not communicate",
    )


def _went_on(e: Evidence, many: list[int], entered: Mapping[int, Entry]) -> str:
    waited = waited_s(e, entered)
    told = f"{named(many)} went on to {call_text(entered[many[0]])}"
    return told + (f"; they waited {in_seconds(waited)}" if waited >= 0.05 else "")


def _goes_on(e: Evidence, entry: Entry) -> bool:
    """Whether all ranks were at this call's line in the row before it."""
    before = [row for row in e.rows if (row.group, row.n) == (entry.group, entry.n - 1)]
    calls = [call for row in before for call in row.entries.values()]
    return bool(calls) and all(call is not None and call.line == entry.line for call in calls)


def _uneven(
    e: Evidence, few: list[int], entered: dict[int, Entry], entry: Entry, steps: int,
    went_on: str, common: dict[str, Any],
) -> Diagnosis:  # fmt: skip
    place = ""
    if entry.line is not None:
        place = f" (`{code_of(entry.line.code)}`, {Path(entry.line.file).name}:{entry.line.line})"
    condition, over = _if_apart(e, few, entered), loop_over(e, entry)
    if re.search(r"\b(parameters|buffers|state_dict)\(", over):
        return Diagnosis(
            "different-models",
            f"{named(few)} had fewer of `{over}` than {named(entered)}: it made "
            f"{counted_times(steps, 'round')}{went_on or ' and left'}; {named(entered)} began one "
            f"more, and waited {in_seconds(waited_s(e, entered))} in {call_text(entry)}",
            "build the model from the same numbers on every rank, and freeze the same layers",
            "10 What if the ranks build different models?",
            **common,
        )
    done = " and was done" if len(few) == 1 else " and were done"
    return Diagnosis(
        "uneven-steps",
        f"{named(few)} made {counted_times(steps, 'step')}{place}{went_on or done}; "
        f"{named(entered)} began one more, and waited {in_seconds(waited_s(e, entered))} in "
        f"{call_text(entry, place=False)}, which {named(few)} never entered",
        _EVEN + (f"; {condition}" if condition else ""),
        "03 What if a rank runs out of data?",
        **common,
    )


def _waits_for_message(e: Evidence) -> Diagnosis | None:
    """One rank waits for a message that its peer never sends."""
    for rank in range(e.ranks):
        talk = _talk(e, rank)
        if talk is None or talk.peer is None or not 0 <= talk.peer < e.ranks:
            continue
        waited = waited_s(e, [rank])
        if _talk(e, talk.peer) or (waited < threshold(e) and not someone_failed(e)):
            continue
        if misled := [r for r in range(e.ranks) if (t := _talk(e, r)) and t.direction == "recv"
                      and t.peer == rank and talk.direction == "send"]:  # fmt: skip
            return Diagnosis(
                "crossed-pairs",
                f"rank {rank} is in {talk.told}, and rank {talk.peer} receives nothing from it"
                f"{elsewhere(e, [talk.peer])}; {named(misled)} waited {in_seconds(waited)} for a "
                f"message from rank {rank}",
                f"does rank {rank} send to the right rank? every send needs its recv on the peer",
                "10 What if two ranks wait for each other?",
                rank,
                talk.direction,
                evidence=standing(e),
            )
        does = "sent" if talk.direction == "recv" else "received"
        theirs = e.ledgers.get(talk.peer)
        times = sum(
            n.p2p is not None and n.p2p.peer == rank and n.p2p.direction != talk.direction
            for n in (theirs.entries if theirs is not None else ())
        )
        asked = sum(
            n.p2p is not None and (n.p2p.peer, n.p2p.direction) == (talk.peer, talk.direction)
            for n in e.ledgers[rank].entries
        )
        if talk.direction == "recv" and times >= asked and has_left(e, talk.peer):
            return Diagnosis(
                "exit-early",
                f"rank {talk.peer} began to send and left before the message was through: rank "
                f"{rank} lost it in {talk.told}",
                "isend only begins: wait() for what it gives before the process ends, and before "
                "the tensor is changed",
                "05 What must two ranks hand over?",
                talk.peer,
                talk.direction,
                evidence=standing(e),
            )
        told = f"never {does}" if not times else f"{does} only {counted_times(times, 'message')}"
        return Diagnosis(
            "never-arrived",
            f"rank {talk.peer} {told}: rank {rank} waited {in_seconds(waited)} in {talk.told}"
            f"{elsewhere(e, [talk.peer])}",
            "every send needs its recv, on the peer, in the same order",
            "05 What must two ranks hand over?",
            talk.peer,
            talk.direction,
            evidence=standing(e),
        )
    return None


def left_early(e: Evidence) -> Diagnosis | None:
    """A rank that left with exit code 0 while others still needed it."""
    dead = {rank: t_s for t_s, rank, code in e.observed.deaths if code == 0}
    left = sorted(rank for rank in range(e.ranks) if has_left(e, rank))
    failed = [rank for rank, code in e.codes.items() if code not in (0, -signal.SIGTERM)]
    if not left or not failed:
        return None
    if e.ended == "time-out" and e.ledgers and not any(other_call(e, rank) for rank in failed):
        return None  # it is by itself that the rest did not end
    first = min(left, key=lambda rank: dead.get(rank, 0.0))
    return Diagnosis(
        "exit-early",
        f"rank {first} left with exit code 0 while {named(failed)} still needed it"
        f"{waiting_for(e, first)}",
        "find out why it left (os._exit, sys.exit, return, an exception that was caught); to "
        "torchrun exit code 0 is success, so it lets the others go on alone",
        "03 May a rank stop when it likes?",
        first,
    )


def _if_apart(e: Evidence, few: list[int], others: Mapping[int, Entry]) -> str:
    """ "`if acc > best:` may have been true on rank 0 only", of the call that these went on to."""
    other = next(iter(others))
    if few[0] not in e.ledgers or other not in e.ledgers:
        return ""
    test = condition_apart(e, e.ledgers[few[0]], e.ledgers[other])
    return f"or `{test}` was not the same on all ranks: let one decide, and broadcast it" if (
        test
    ) else ""  # fmt: skip


def _lesson_for_alone(entry: Entry) -> str:
    if entry.part == "buffers before forward":
        return "03 May rank 0 evaluate alone?"
    return "03 May one rank wait alone?"
