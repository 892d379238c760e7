"""Every rank's ledger of collectives: what it holds, and reading it.

A rank leaves `ledger-<rank>-<attempt>.json` (observe/recorder). The classes below are its schema;
`read` checks each file against them. One that is foreign, damaged or too large is refused, and the
reason is kept.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ddp_course import disk

ANY_RANK = -1  # the peer of a receive from whoever sends
NEW_GROUP = "new_group"  # calls of new_group count as a group of their own, of all ranks

_NAME = re.compile(r"ledger-(\d{1,5})-(\d{1,9})\.json")
_MOST_BYTES = 8_000_000
_MOST_FILES = 10_000
_MOST_RANKS = 4_096

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Signed = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 62)]
Rank = Annotated[int, Meta(ge=0, lt=_MOST_RANKS)]
Peer = Annotated[int, Meta(ge=ANY_RANK, lt=_MOST_RANKS)]
Text = Annotated[str, Meta(max_length=10_000)]
Time = Annotated[float, Meta(ge=0, lt=1e11)]  # seconds since 1970, to the year 5138
Ranks = Annotated[tuple[Rank, ...], Meta(max_length=_MOST_RANKS)]
Size = Annotated[tuple[Count, ...], Meta(max_length=64)]


@dataclass(frozen=True)
class Frame:
    """A line of code in a function."""

    file: Text
    line: Count
    function: Text
    code: Text


Stack = Annotated[tuple[Frame, ...], Meta(max_length=1_000)]


@dataclass(frozen=True)
class Pair:
    """The other end of a send or recv."""

    peer: Peer  # its global rank; ANY_RANK: whoever sends
    direction: Literal["send", "recv"]
    tag: Signed = 0


@dataclass(frozen=True)
class Entry:
    """One collective, send or receive, as one rank issued it."""

    n: Count  # the n-th of its group; of a send or recv: of those with the same peer, 1 the first
    group: Text  # the name of its process group; "0" is that of all ranks
    op: Text  # "all_reduce", "broadcast", "barrier", …
    sizes: Annotated[tuple[Size, ...], Meta(max_length=64)]  # of the tensors
    dtypes: Annotated[tuple[Text, ...], Meta(max_length=64)]  # "float32", …
    bytes: Count
    t: Time
    # what torch says; on Gloo it never says more than "scheduled"
    state: Literal["scheduled", "started", "completed", "unknown"] = "scheduled"
    p2p: Pair | None = None
    line: Frame | None = None  # in the learner's own code
    callers: Stack = ()  # the learner's lines that led there, of a call of their own
    part: Text | None = None  # inside DDP: "gradient bucket 2", …; None where that is not sure
    root: Peer | None = None  # global rank that sends to all, or gets all; None without one
    reduce: Text = ""  # "sum", "max", …; "" where nothing is reduced, or C++ issued it
    members: Ranks = ()  # of a call of new_group: the ranks of the group it makes
    passes: Count = 0  # that this rank had begun by then, this one included; see recorder/progress
    steps: Count = 0  # of the optimizer that were done by then

    @property
    def elements(self) -> int:
        return sum(math.prod(size) for size in self.sizes)


@dataclass(frozen=True)
class Raised:
    """An exception that nobody caught."""

    type: Text
    text: Text
    line: Frame | None = None


@dataclass(frozen=True)
class Stray:
    """A call of a group of which this rank is no member: torch warns, and does nothing."""

    op: Text
    t: Time
    line: Frame | None = None


@dataclass(frozen=True)
class Replica:
    """A model in DDP on one rank, and checksums of its parameters."""

    name: Text  # of its class
    number: Count  # among the rank's models, by their first forward
    ranks: Ranks  # of its process group
    parameters: Annotated[tuple[Text, ...], Meta(max_length=5_000)]
    # passes made -> a checksum of each parameter then, None for one that is not trained: after the
    # optimizer's step, or where there was none before the next forward; 0: before the first one
    samples: Mapping[Count, tuple[Count | None, ...]]

    def __post_init__(self) -> None:
        if any(len(numbers) != len(self.parameters) for numbers in self.samples.values()):
            raise ValueError("a sample is not of these parameters")

    def __str__(self) -> str:
        second = f" {self.number + 1}" if self.number else ""
        return f"DDP({self.name}){second} on ranks {', '.join(map(str, self.ranks))}"

    @property
    def digests(self) -> dict[str, str]:
        """Of each sample: what it is of -> one checksum of all its parameters."""
        return {
            f"{self}, after {after} passes": f"{zlib.crc32(repr(numbers).encode()):08x}"
            for after, numbers in self.samples.items()
            if any(number is not None for number in numbers)
        }


@dataclass(frozen=True)
class Ledger:
    """What one rank told at its end, or when it was asked."""

    rank: Rank
    attempt: Count
    # "aborted": C++ gave up
    why: Literal["exit", "exception", "terminated", "aborted", "asked"]
    t: Time
    entries: Annotated[tuple[Entry, ...], Meta(max_length=5_000)] = ()
    dropped: Count = 0  # entries before these
    exit_code: Signed | None = None  # None: not known when it was written
    exception: Raised | None = None
    stack: Stack = ()  # of the main thread (of the exception), outermost first
    groups: Mapping[Text, Ranks] = field(default_factory=dict)  # ranks, where known
    in_group: bool = False  # its process group was not destroyed
    world_size: Count = 0
    passes: Count = 0  # forwards of a DDP model whose backward averages, begun
    steps: Count = 0  # optimizer steps done; of several optimizers, of the one that made the most
    scales: Mapping[Count, float] = field(default_factory=dict)  # GradScaler update -> scale before
    replicas: Annotated[tuple[Replica, ...], Meta(max_length=_MOST_RANKS)] = ()
    outside: Annotated[tuple[Stray, ...], Meta(max_length=1_000)] = ()
    handling: Raised | None = None  # the exception for which it is in an `except` or `finally`
    version: Literal[2] = 2


class Ledgers(dict[int, Ledger]):
    """{rank: its ledger}, and why some were refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: dict[str, str] = {}  # file name -> reason


def read(folder: str | Path) -> Ledgers:
    """The ledger of each rank's last attempt in a run's folder; what is no ledger is refused."""
    folder, found, newest = Path(folder), Ledgers(), _newest(Path(folder))
    for rank, (attempt, path) in sorted(newest.items()):
        try:
            ledger = disk.read_as(Ledger, path, _MOST_BYTES)
            if (ledger.rank, ledger.attempt) != (rank, attempt):
                raise ValueError("it is of another rank or attempt than its name says")
            found[rank] = ledger
        except (OSError, ValueError) as error:
            found.refused[path.name] = str(error)
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
