"""Every rank's ledger of collectives, read, aligned, and searched for the first divergence.

A rank leaves `ledger-<rank>-<attempt>.json` (observe/scribe.py). `read` checks each file against
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
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted

ANY_RANK = -1  # the peer of a receive from whoever sends

_NAME = re.compile(r"ledger-(\d{1,5})-(\d{1,9})\.json")
_MOST_BYTES = 8_000_000
_MOST_FILES = 10_000
_MOST_ENTRIES = 5_000
_MOST_FRAMES = 1_000
_MOST_TENSORS = 64
_MOST_DIMENSIONS = 64
_MOST_RANKS = 4_096
_MOST_TRACE_BYTES = 32_000_000
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
    end: float | None = None  # from the profiler's trace; None without one
    state: str = "scheduled"  # what torch says; on Gloo it never says more
    p2p: Pair | None = None
    line: Frame | None = None  # in the learner's own code
    part: str | None = None  # inside DDP: "gradient bucket 2", …; None where that is not sure

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
    world_size: int = 0
    digests: Mapping[str, str] = field(default_factory=dict)  # of what DDP keeps equal, at the end
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

    kind: str  # "missing", "operation", "size", "dtype", "order"
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
            found[rank] = _with_ends(ledger, folder / f"trace-{rank}.json")
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
    return sorted(rows, key=lambda row: row.t)


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
    by_signature: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, entry in entered.items():
        by_signature[_signature(entry)].append(rank)
    most = max(by_signature.values(), key=lambda ranks: (len(ranks), -min(ranks)))
    deviating = tuple(rank for rank in entered if rank not in most)
    right, wrong = entered[most[0]], entered[deviating[0]]
    if _swapped(row, rows, most[0], deviating[0]):
        kind = "order"
    elif right.op != wrong.op and right.p2p is None:
        kind = "operation"
    else:
        kind = "size" if right.elements != wrong.elements else "dtype"
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


def _verdict(entries: Mapping[int, Entry | None]) -> str:
    entered = [entry for entry in entries.values() if entry is not None]
    if len({_signature(entry) for entry in entered}) > 1:
        return "differs"
    return "same" if len(entered) == len(entries) else "missing"


def _signature(entry: Entry) -> tuple[Any, ...]:
    """What must agree between the ranks."""
    op = "" if entry.p2p is not None else entry.op
    if entry.op in _UNEVEN:
        return op, None, entry.dtypes
    return op, entry.elements, entry.dtypes


def _last_attempt(ledgers: Mapping[int, Ledger]) -> dict[int, Ledger]:
    last = max((ledger.attempt for ledger in ledgers.values()), default=0)
    return {rank: ledgers[rank] for rank in sorted(ledgers) if ledgers[rank].attempt == last}


def _members(group: str, ledgers: Mapping[int, Ledger], by_rank: Mapping[int, object]) -> list[int]:
    """The ranks of a group that have a ledger: as a rank tells, else those that used the group."""
    if group in ("0", ""):  # without a name with TORCH_DISTRIBUTED_DEBUG=DETAIL
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
        world_size=_whole(raw.get("world_size", 0), "world_size"),
        digests=_digests(raw.get("digests", {})),
        handling=_raised(raw.get("handling")),
    )


def _entry(raw: Any) -> Entry:
    sizes = _list(raw["sizes"], _MOST_TENSORS, "sizes")
    pair, line, part, end = (raw.get(name) for name in ("p2p", "line", "part", "end"))
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
        end=None if end is None else _time(end),
        state=_one_of(raw["state"], _STATES, "state"),
        p2p=None if pair is None else _pair(pair),
        line=None if line is None else _frame(line),
        part=None if part is None else _text(part, "part"),
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
    return {
        _text(name, "group"): tuple(
            _whole(rank, "rank", _MOST_RANKS) for rank in _list(ranks, _MOST_RANKS, "ranks")
        )
        for name, ranks in raw.items()
    }


def _digests(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or len(raw) > _MOST_ENTRIES:
        raise ValueError("digests are no table")
    return {_text(name, "a digest"): _text(value, "a digest") for name, value in raw.items()}


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


# When a collective ended


def _with_ends(ledger: Ledger, path: Path) -> Ledger:
    """The same with the ends that the profiler saw, where a trace has as many as the ledger."""
    try:
        trace = untrusted.read_json(path, _MOST_TRACE_BYTES)
        base, events = trace["baseTimeNanoseconds"], trace["traceEvents"]
        spans = [_span(base, event) for event in events if _is_complete(event)]
    except (OSError, ValueError, TypeError, KeyError, OverflowError, AttributeError):
        return ledger
    if not spans:
        return ledger
    first, last = min(span[1] for span in spans), max(span[2] for span in spans)
    ends: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    for op, _, end, elements in sorted(spans, key=lambda span: span[1]):
        if op:
            ends[op, elements].append(end)
    inside: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for index, entry in enumerate(ledger.entries):
        if first <= entry.t <= last:
            inside[entry.op, entry.elements].append(index)
    entries = list(ledger.entries)
    for key, indices in inside.items():
        if len(indices) == len(ends.get(key, ())):
            for index, end in zip(indices, ends[key], strict=True):
                entries[index] = replace(entries[index], end=end)
    return replace(ledger, entries=tuple(entries))


def _is_complete(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X"


def _span(base: Any, event: dict[str, Any]) -> tuple[str, float, float, int | None]:
    """(operation or "", start, end, elements): in seconds since 1970."""
    start = _time((base + event["ts"] * 1000) / 1e9)
    op = str(event["name"])
    op = op.removeprefix("gloo:") if op.startswith("gloo:") else ""
    return op, start, start + _time(event["dur"] / 1e6), _elements(event) if op else None


def _elements(event: Mapping[str, Any]) -> int | None:
    arguments = event.get("args")
    dims = arguments.get("Input Dims") if isinstance(arguments, dict) else None
    if not isinstance(dims, list):
        return None
    return sum(math.prod(_flat(size)) for size in dims)


def _flat(size: Any) -> Iterable[int]:
    while isinstance(size, list) and size and isinstance(size[0], list):
        size = size[0]
    return [_whole(one, "a size", 1 << 40) for one in _list(size, _MOST_DIMENSIONS, "a size")]
