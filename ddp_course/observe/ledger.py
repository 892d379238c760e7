"""Every rank's ledger of collectives, read, aligned, and searched for the first divergence.

A rank leaves `ledger-<rank>-<attempt>.json` (observe/recorder). `read` checks each file against
its limits; one that is foreign, damaged or too large is refused, and the reason is kept. `align`
puts the same collective of all ranks into one row, `pairs` a send and its receive.

Two ranks issue the same collective if it is the n-th of the same process group, as torch counts
them, and operation, number of elements and type agree. Gloo never tells which have completed, so an
entry says that a rank entered, not that it left.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted

ANY_RANK = -1  # the peer of a receive from whoever sends

_NAME = re.compile(r"ledger-(\d{1,5})-(\d{1,9})\.json")
NEW_GROUP = "new_group"  # calls of new_group count as a group of their own, of all ranks
_MOST_BYTES = 8_000_000
_MOST_FILES = 10_000
_MOST_ENTRIES = 5_000
_MOST_FRAMES = 1_000
_MOST_TENSORS = 64
_MOST_DIMENSIONS = 64
_MOST_RANKS = 4_096
_LONGEST = 10_000  # characters of one text
_LARGEST = 1 << 62
_LATEST = 1e11  # seconds since 1970: year 5138
_WHYS = "exit", "exception", "terminated", "aborted", "asked"
_STATES = "scheduled", "started", "completed", "unknown"
_UNEVEN = "all_to_all", "all_to_all_single"  # sizes may differ from rank to rank by design
_NEAR = 8  # rows within which two collectives in another order are looked for


@dataclass(frozen=True)
class Frame:
    """A line of code in a function."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class Pair:
    """The other end of a send or recv."""

    peer: int  # its global rank; ANY_RANK: whoever sends
    direction: str  # "send" or "recv"
    tag: int = 0


@dataclass(frozen=True)
class Entry:
    """One collective, send or receive, as one rank issued it."""

    n: int  # the n-th of its group; of a send or recv: of those with the same peer, 1 the first
    group: str  # the name of its process group; "0" is that of all ranks
    op: str  # "all_reduce", "broadcast", "barrier", …
    sizes: tuple[tuple[int, ...], ...]  # of the tensors
    dtypes: tuple[str, ...]  # "float32", …
    bytes: int
    t: float  # seconds since 1970
    state: str = "scheduled"  # what torch says; on Gloo it never says more
    p2p: Pair | None = None
    line: Frame | None = None  # in the learner's own code
    callers: tuple[Frame, ...] = ()  # the learner's lines that led there, of a call of their own
    part: str | None = None  # inside DDP: "gradient bucket 2", …; None where that is not sure
    root: int | None = None  # global rank that sends to all, or gets all; None without one
    reduce: str = ""  # "sum", "max", …; "" where nothing is reduced, or C++ issued it
    members: tuple[int, ...] = ()  # of a call of new_group: the ranks of the group it makes
    passes: int = 0  # that this rank had begun by then, this one included; see recorder/progress
    steps: int = 0  # of the optimizer that were done by then

    @property
    def elements(self) -> int:
        return sum(math.prod(size) for size in self.sizes)


@dataclass(frozen=True)
class Raised:
    """An exception that nobody caught."""

    type: str
    text: str
    line: Frame | None = None


@dataclass(frozen=True)
class Stray:
    """A call of a group of which this rank is no member: torch warns, and does nothing."""

    op: str
    t: float
    line: Frame | None = None


@dataclass(frozen=True)
class Replica:
    """A model in DDP on one rank, and checksums of its parameters."""

    name: str  # of its class
    number: int  # among the rank's models, by their first forward
    ranks: tuple[int, ...]  # of its process group
    parameters: tuple[str, ...]
    # passes made -> a checksum of each parameter then, None for one that is not trained: after the
    # optimizer's step, or where there was none before the next forward; 0: before the first one
    samples: Mapping[int, tuple[int | None, ...]]

    def __str__(self) -> str:
        second = f" {self.number + 1}" if self.number else ""
        return f"DDP({self.name}){second} on ranks {', '.join(map(str, self.ranks))}"


@dataclass(frozen=True)
class Ledger:
    """What one rank told at its end, or when it was asked."""

    rank: int
    attempt: int
    why: str  # "exit", "exception", "terminated", "aborted" (C++ gave up), "asked"
    t: float  # seconds since 1970
    entries: tuple[Entry, ...] = ()
    dropped: int = 0  # entries before these
    exit_code: int | None = None  # None: not known when it was written
    exception: Raised | None = None
    stack: tuple[Frame, ...] = ()  # of the main thread (of the exception), outermost first
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # ranks, where known
    in_group: bool = False  # its process group was not destroyed
    world_size: int = 0
    passes: int = 0  # forwards of a DDP model whose backward averages, begun
    steps: int = 0  # optimizer steps done; of several optimizers, of the one that made the most
    digests: Mapping[str, str] = field(default_factory=dict)  # model and pass -> of its samples
    scales: Mapping[int, float] = field(default_factory=dict)  # GradScaler update -> scale before
    replicas: tuple[Replica, ...] = ()
    outside: tuple[Stray, ...] = ()
    handling: Raised | None = None  # the exception for which it is in an `except` or `finally`


class Ledgers(dict[int, Ledger]):
    """{rank: its ledger}, and why some were refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: dict[str, str] = {}  # file name -> reason


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


def read(folder: str | Path) -> Ledgers:
    """The ledger of each rank's last attempt in a run's folder; what is no ledger is refused."""
    folder, found, newest = Path(folder), Ledgers(), _newest(Path(folder))
    for rank, (attempt, path) in sorted(newest.items()):
        try:
            ledger = _ledger(untrusted.read_json(path, _MOST_BYTES))
            if (ledger.rank, ledger.attempt) != (rank, attempt):
                raise ValueError("it is of another rank or attempt than its name says")
            found[rank] = ledger
        except (OSError, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            found.refused[path.name] = str(error) or type(error).__name__
    return found


def written(folder: str | Path) -> dict[int, tuple[int, int]]:
    """When the newest ledger of each rank was written: {rank: (attempt, ns since 1970)}."""
    times: dict[int, tuple[int, int]] = {}
    for rank, (attempt, path) in _newest(Path(folder)).items():
        with contextlib.suppress(OSError):
            times[rank] = attempt, path.stat().st_mtime_ns
    return times


def calls(folder: str | Path) -> dict[int, int]:
    """How many collectives, sends and receives each rank had issued: {rank: count}."""
    return {rank: one.dropped + len(one.entries) for rank, one in read(folder).items()}


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


# Reading


def _newest(folder: Path) -> dict[int, tuple[int, Path]]:
    """{rank: (attempt, file)} of the last attempts."""
    newest: dict[int, tuple[int, Path]] = {}
    with contextlib.suppress(OSError):
        for path in itertools.islice(folder.iterdir(), _MOST_FILES):
            match = _NAME.fullmatch(path.name)
            if match and int(match[1]) < _MOST_RANKS:
                rank, attempt = int(match[1]), int(match[2])
                newest[rank] = max(newest.get(rank, (-1, path)), (attempt, path))
    return newest


def _ledger(raw: Any) -> Ledger:
    """Raises ValueError, TypeError, KeyError or AttributeError for what is no ledger."""
    if not isinstance(raw, dict) or raw.get("version") != 1:
        raise ValueError("it is no ledger of version 1")
    entries = _list(raw["entries"], _MOST_ENTRIES, "entries")
    exit_code = raw.get("exit_code")
    replicas = tuple(map(_replica, _list(raw.get("replicas", []), _MOST_RANKS, "replicas")))
    return Ledger(
        rank=_whole(raw["rank"], "rank", _MOST_RANKS),
        attempt=_whole(raw["attempt"], "attempt"),
        why=_one_of(raw["why"], _WHYS, "why"),
        t=_time(raw["t"]),
        entries=tuple(map(_entry, entries)),
        dropped=_whole(raw["dropped"], "dropped"),
        exit_code=None if exit_code is None else _whole(exit_code, "exit_code", low=-(1 << 31)),
        exception=_raised(raw.get("exception")),
        stack=tuple(_frame(one) for one in _list(raw.get("stack", []), _MOST_FRAMES, "stack")),
        groups=_groups(raw.get("groups", {})),
        in_group=bool(raw.get("in_group", raw.get("groups"))),
        world_size=_whole(raw.get("world_size", 0), "world_size"),
        passes=_whole(raw.get("passes", 0), "passes"),
        steps=_whole(raw.get("steps", 0), "steps"),
        scales=_scales(raw.get("scales", [])),
        digests=_digests(raw.get("digests", {}), replicas),
        replicas=replicas,
        outside=tuple(map(_stray, _list(raw.get("outside", []), _MOST_FRAMES, "outside"))),
        handling=_raised(raw.get("handling")),
    )


def _entry(raw: Any) -> Entry:
    sizes = _list(raw["sizes"], _MOST_TENSORS, "sizes")
    pair, line, part, root = (raw.get(name) for name in ("p2p", "line", "part", "root"))
    return Entry(
        n=_whole(raw["n"], "n"),
        group=_text(raw["group"], "group"),
        op=_text(raw["op"], "op"),
        sizes=tuple(
            tuple(_whole(one, "a size") for one in _list(size, _MOST_DIMENSIONS, "a size"))
            for size in sizes
        ),
        dtypes=tuple(_text(one, "dtypes") for one in _list(raw["dtypes"], _MOST_TENSORS, "dtypes")),
        bytes=_whole(raw["bytes"], "bytes"),
        t=_time(raw["t"]),
        state=_one_of(raw["state"], _STATES, "state"),
        p2p=None if pair is None else _pair(pair),
        line=None if line is None else _frame(line),
        callers=tuple(map(_frame, _list(raw.get("callers", []), _MOST_FRAMES, "callers"))),
        part=None if part is None else _text(part, "part"),
        root=None if root is None else _whole(root, "root", _MOST_RANKS, ANY_RANK),
        reduce=_text(raw.get("reduce", ""), "reduce"),
        members=_ranks(raw.get("members", [])),
        passes=_whole(raw.get("passes", 0), "passes"),
        steps=_whole(raw.get("steps", 0), "steps"),
    )


def _pair(raw: Any) -> Pair:
    return Pair(
        _whole(raw["peer"], "peer", _MOST_RANKS, ANY_RANK),
        _one_of(raw["direction"], ("send", "recv"), "direction"),
        _whole(raw.get("tag", 0), "tag", low=-(1 << 31)),
    )


def _frame(raw: Any) -> Frame:
    return Frame(
        _text(raw["file"], "file"),
        _whole(raw["line"], "line"),
        _text(raw["function"], "function"),
        _text(raw["code"], "code"),
    )


def _raised(raw: Any) -> Raised | None:
    if raw is None:
        return None
    line = raw.get("line")
    return Raised(
        _text(raw["type"], "type"),
        _text(raw["text"], "text"),
        None if line is None else _frame(line),
    )


def _groups(raw: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(raw, dict) or len(raw) > _MOST_ENTRIES:
        raise ValueError("groups are no table")
    return {_text(name, "group"): _ranks(ranks) for name, ranks in raw.items()}


def _stray(raw: Any) -> Stray:
    line = raw.get("line")
    return Stray(_text(raw["op"], "op"), _time(raw["t"]), None if line is None else _frame(line))


def _replica(raw: Any) -> Replica:
    names = _list(raw["parameters"], _MOST_ENTRIES, "parameters")
    samples = {}
    for after, _, values in _list(raw["samples"], _MOST_ENTRIES, "samples"):
        numbers = [None if n is None else _whole(n, "a checksum") for n in values]
        if len(numbers) != len(names):
            raise ValueError("a sample is not of these parameters")
        samples[_whole(after, "a pass")] = tuple(numbers)
    return Replica(
        name=_text(raw["name"], "name"),
        number=_whole(raw["number"], "number"),
        ranks=_ranks(raw["ranks"]),
        parameters=tuple(_text(name, "a parameter") for name in names),
        samples=samples,
    )


def _digests(raw: Any, replicas: Sequence[Replica]) -> dict[str, str]:
    """Of each sample, or what an older recorder noted at the end."""
    if not isinstance(raw, dict) or len(raw) > _MOST_ENTRIES:
        raise ValueError("digests are no table")
    found = {_text(name, "a digest"): _text(value, "a digest") for name, value in raw.items()}
    for replica in replicas:
        for after, numbers in replica.samples.items():
            if any(number is not None for number in numbers):
                value = f"{zlib.crc32(repr(numbers).encode()):08x}"
                found[f"{replica}, after {after} passes"] = value
    return found


def _scales(raw: Any) -> dict[int, float]:
    pairs = _list(raw, _MOST_ENTRIES, "scales")
    return {_whole(n, "an update"): float(scale) for n, scale in pairs}


def _ranks(raw: Any) -> tuple[int, ...]:
    return tuple(_whole(rank, "rank", _MOST_RANKS) for rank in _list(raw, _MOST_RANKS, "ranks"))


def _whole(value: Any, name: str, below: int = _LARGEST, low: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < below:
        raise ValueError(f"{name} is no whole number within its limits")
    return value


def _time(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < _LATEST:  # nor is NaN
        raise ValueError("a time is no time")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError(f"{name} is no text within its limits")
    return value


def _one_of(value: Any, allowed: Sequence[str], name: str) -> str:
    if value not in allowed:
        raise ValueError(f"{name} is none of {', '.join(allowed)}")
    return str(value)


def _list(value: Any, most: int, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{name} is no list within its limits")
    return value
