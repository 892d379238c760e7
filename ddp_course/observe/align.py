"""The ledgers of all ranks side by side, searched for the first divergence.

`align` puts the same collective of all ranks into one row, `pairs` a send and its receive.

Two ranks issue the same collective if it is the n-th of the same process group, as torch counts
them, and operation, number of elements and type agree. Gloo never tells which have completed, so an
entry says that a rank entered, not that it left.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddp_course.observe.ledger import ANY_RANK, NEW_GROUP, Entry, Ledger, Replica

_UNEVEN = "all_to_all", "all_to_all_single"  # sizes may differ from rank to rank by design
_NEAR = 8  # rows within which two collectives in another order are looked for


@dataclass(frozen=True)
class Row:
    """The same collective on every rank of its group, or a send and its receive."""

    group: str
    n: int
    entries: Mapping[int, Entry | None]  # None: the rank never issued it
    verdict: str  # "same", "differs", "missing"

    @property
    def t(self) -> float:
        """When the first rank issued it."""
        return min(entry.t for entry in self.entries.values() if entry is not None)


@dataclass(frozen=True)
class Divergence:
    """Where the ranks part: who lacks what, or issued something else."""

    kind: str  # "missing", "operation", "size", "dtype", "root", "reduce", "members", "order"
    ranks: tuple[int, ...]  # that lack it, or deviate from most (from the first rank, if halves)
    entry: Entry  # what the others issued
    row: Row


def align(ledgers: Mapping[int, Ledger]) -> list[Row]:
    """The collectives of all ranks, a row for each, by the time of the first rank that issued it.

    Only the last attempt counts. Where a rank has dropped its early entries, it is left out of
    their rows.
    """
    ledgers = _last_attempt(ledgers)
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL two counters share a group: a number may come twice.
    tables: dict[tuple[str, int], dict[int, dict[int, Entry]]] = defaultdict(dict)
    for rank, ledger in ledgers.items():
        seen: Counter[tuple[str, int]] = Counter()
        for entry in ledger.entries:
            if entry.p2p is None:
                key = entry.group, entry.n
                tables[entry.group, seen[key]].setdefault(rank, {})[entry.n] = entry
                seen[key] += 1
    rows: list[Row] = []
    for (group, _), by_rank in tables.items():
        members = _members(group, ledgers, by_rank)
        for n in sorted({n for entries in by_rank.values() for n in entries}):
            known = [rank for rank in members if _tells(ledgers[rank], by_rank.get(rank, {}), n)]
            entries = {rank: by_rank.get(rank, {}).get(n) for rank in known}
            rows.append(Row(group, n, entries, _verdict(entries)))
    return sorted(_crossed(rows), key=lambda row: row.t)


def pairs(ledgers: Mapping[int, Ledger]) -> list[Row]:
    """The sends and receives: in a row the k-th send of one rank to another, and its receive.

    Left out: sends to a rank that receives from whoever sends, and ranks without a ledger.
    """
    ledgers = _last_attempt(ledgers)
    table: dict[tuple[str, int, int, int], dict[str, dict[int, Entry]]] = defaultdict(dict)
    open_ends: set[tuple[str, int]] = set()
    for rank, ledger in ledgers.items():
        for entry in ledger.entries:
            pair = entry.p2p
            if pair is None:
                continue
            if pair.peer == ANY_RANK:
                open_ends.add((entry.group, rank))
            ends = (rank, pair.peer) if pair.direction == "send" else (pair.peer, rank)
            sides = table[(entry.group, *ends, pair.tag)]
            sides.setdefault(pair.direction, {})[entry.n] = entry
    rows: list[Row] = []
    for (group, source, target, _), sides in table.items():
        both = source in ledgers and target in ledgers and source != target
        if not both or (group, target) in open_ends:
            continue
        for n in sorted({n for entries in sides.values() for n in entries}):
            entries = {
                rank: sides.get(direction, {}).get(n)
                for rank, direction in ((source, "send"), (target, "recv"))
                if _tells(ledgers[rank], sides.get(direction, {}), n)
            }
            rows.append(Row(group, n, entries, _verdict(entries)))
    return sorted(rows, key=lambda row: row.t)


@dataclass(frozen=True)
class Difference:
    """Where the replicas of a model part: the first sampled pass at which some parameters differ.

    since: the last pass before it at which all were equal; None if none of those sampled was.
    """

    replica: Replica
    after: int  # passes
    since: int | None
    parameters: tuple[str, ...]
    ranks: tuple[int, ...]  # that are not as most are (as the first, if halves)


def first_difference(ledgers: Mapping[int, Ledger]) -> Difference | None:
    """The first difference between the ranks' replicas of a model; None if there is none.

    Compares the samples that all ranks of the model have taken; parameters go by their place, and a
    rank on which one is not trained does not count for it.
    """
    found: dict[tuple[int, tuple[int, ...]], dict[int, Replica]] = defaultdict(dict)
    for rank, ledger in _last_attempt(ledgers).items():
        for replica in ledger.replicas:
            found[replica.number, replica.ranks][rank] = replica
    for by_rank in found.values():
        first, since = next(iter(by_rank.values())), None
        for after in sorted(set.intersection(*(set(r.samples) for r in by_rank.values()))):
            values = {rank: r.samples[after] for rank, r in by_rank.items()}
            columns = zip(*values.values(), strict=False)
            odd = [i for i, column in enumerate(columns) if len({*column} - {None}) > 1]
            if odd:
                of_rank = {rank: tuple(numbers[i] for i in odd) for rank, numbers in values.items()}
                most = Counter(of_rank.values()).most_common(1)[0][0]
                ranks = tuple(rank for rank, numbers in of_rank.items() if numbers != most)
                names = tuple(first.parameters[i] for i in odd)
                return Difference(first, after, since, names, ranks)
            since = after
    return None


def first_divergence(ledgers: Mapping[int, Ledger]) -> Divergence | None:
    """The earliest row that is not the same on all its ranks; None if there is none.

    A collective counts before any send or receive. Ranks that were asked while they ran may merely
    be at different places: ask again, or look how long ago the row's first entry was.
    """
    rows = align(ledgers)
    for row in (row for part in (rows, pairs(ledgers)) for row in part if row.verdict != "same"):
        return _divergence(row, rows)
    return None


def _divergence(row: Row, rows: Sequence[Row]) -> Divergence:
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    absent = tuple(rank for rank, entry in row.entries.items() if entry is None)
    if absent and len({_signature(entry) for entry in entered.values()}) == 1:
        return Divergence("missing", absent, next(iter(entered.values())), row)
    codes, agree = _codes(row), len({_signature(entry) for entry in entered.values()}) == 1
    by_signature: dict[Any, list[int]] = defaultdict(list)
    for rank, entry in entered.items():
        by_signature[codes.get(rank) if agree else _signature(entry)].append(rank)
    most = max(by_signature.values(), key=lambda ranks: (len(ranks), -min(ranks)))
    deviating = tuple(rank for rank in entered if rank not in most)
    right, wrong = entered[most[0]], entered[deviating[0]]
    if agree or _swapped(row, rows, most[0], deviating[0]):
        kind = "order"
    elif right.op != wrong.op and right.p2p is None:
        kind = "operation"
    else:
        kind = next(
            name
            for name in ("elements", "dtypes", "root", "reduce", "members")
            if getattr(right, name) != getattr(wrong, name)
        )
    kind = {"elements": "size", "dtypes": "dtype"}.get(kind, kind)
    return Divergence(kind, deviating, right, row)


def _swapped(row: Row, rows: Sequence[Row], one: int, other: int) -> bool:
    """Whether each of two ranks issues soon afterwards what the other one issues now."""
    soon = [r for r in rows if r.group == row.group and row.n < r.n <= row.n + _NEAR]
    mine, theirs = row.entries.get(one), row.entries.get(other)
    if mine is None or theirs is None or mine.p2p is not None:
        return False

    def later(rank: int, wanted: Entry) -> bool:
        entries = (r.entries.get(rank) for r in soon)
        return any(e is not None and _signature(e) == _signature(wanted) for e in entries)

    return later(other, mine) and (later(one, theirs) or not any(r.entries.get(one) for r in soon))


def _crossed(rows: Sequence[Row]) -> list[Row]:
    """The same rows; those of calls that fit, but are another line's on some rank, "differ".

    Two ranks that reduce loss and accuracy in opposite order mix them, and nothing fails. They are
    told by their code: each issues soon what the other one issues now.
    """
    crossed: set[int] = set()
    by_group: dict[str, list[int]] = defaultdict(list)
    for i in sorted(range(len(rows)), key=lambda i: rows[i].n):
        by_group[rows[i].group].append(i)
    for indices in by_group.values():
        for place, i in enumerate(indices):
            codes = _codes(rows[i])
            if len({*codes.values()}) > 1 and rows[i].verdict == "same":
                for j in indices[place + 1 : place + 1 + _NEAR]:
                    later = _codes(rows[j])
                    if rows[j].verdict == "same" and any(
                        codes[one] != codes[other]
                        and (codes[one], codes[other]) == (later.get(other), later.get(one))
                        for one, other in itertools.combinations(codes, 2)
                    ):
                        crossed |= {i, j}
    return [replace(row, verdict="differs") if i in crossed else row for i, row in enumerate(rows)]


def _codes(row: Row) -> dict[int, str]:
    """The line of code by which each rank issued it, of the learner's own calls."""
    told = ((rank, entry) for rank, entry in row.entries.items() if entry is not None)
    return {rank: entry.line.code for rank, entry in told if entry.line and not entry.part}


def _verdict(entries: Mapping[int, Entry | None]) -> str:
    entered = [entry for entry in entries.values() if entry is not None]
    if len({_signature(entry) for entry in entered}) > 1:
        return "differs"
    return "same" if len(entered) == len(entries) else "missing"


def _signature(entry: Entry) -> tuple[Any, ...]:
    """What must agree between the ranks."""
    op = "" if entry.p2p is not None else entry.op
    elements = None if entry.op in _UNEVEN else entry.elements
    return op, elements, entry.dtypes, entry.root, entry.reduce, entry.members


def _last_attempt(ledgers: Mapping[int, Ledger]) -> dict[int, Ledger]:
    last = max((ledger.attempt for ledger in ledgers.values()), default=0)
    return {rank: ledgers[rank] for rank in sorted(ledgers) if ledgers[rank].attempt == last}


def _members(group: str, ledgers: Mapping[int, Ledger], by_rank: Mapping[int, object]) -> list[int]:
    """The ranks of a group that have a ledger: as a rank tells, else those that used the group."""
    if group in ("0", "", NEW_GROUP):  # without a name with TORCH_DISTRIBUTED_DEBUG=DETAIL
        return list(ledgers)
    told = {rank for ledger in ledgers.values() for rank in ledger.groups.get(group, ())}
    return sorted((told | set(by_rank)) & set(ledgers))


def _tells(ledger: Ledger, entries: Mapping[int, Entry], n: int) -> bool:
    """Whether a rank's ledger shows if it issued number n."""
    return not ledger.dropped or (bool(entries) and n >= min(entries))
