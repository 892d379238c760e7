"""All that a diagnosis may use, and what it tells about each rank: where it stood, and how long.

Nothing here judges; the rules do (`ends`, `start`, `waits`, `order`, `finished`).
"""

from __future__ import annotations

import itertools
import re
import signal
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ddp_course.diagnosis.source import Source
from ddp_course.diagnosis.words import call_text, named, place_text
from ddp_course.observe import align, output
from ddp_course.observe.align import Row
from ddp_course.observe.ledger import Entry, Frame, Ledger
from ddp_course.observe.output import Lines, Observed
from ddp_course.run.failure import exit_text

_TOO_EARLY_S = 2.0  # of waiting, before a live rank is called late
_TRACEBACK = "Traceback (most recent call"
_TRACED = re.compile(r'  File "(.+)", line (\d+), in ')
# Files in whose functions a rank waits for something that is not a collective.
_WAITS = {
    "threading.py": "a lock or a thread",
    "queue.py": "a queue",
    "selectors.py": "input",
    "socket.py": "the network",
    "subprocess.py": "another program",
    "connection.py": "another process",
    "popen_fork.py": "another process",
    "process.py": "another process",
    "filelock.py": "a file's lock",
    "_unix.py": "a file's lock",
}


@dataclass(frozen=True)
class Evidence:
    """All that a diagnosis may use."""

    ranks: int
    ended: str  # "finished", "failed", "time-out", "stopped" or "running"
    script: Path = Path("job.py")
    limit_s: float = 0.0
    lines: Lines = field(default_factory=Lines)
    events: Sequence[Mapping[str, Any]] = ()
    codes: Mapping[int, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    ledgers: Mapping[int, Ledger] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    began: float = 0.0  # time of day of the launch
    now: float = field(default_factory=time.time)
    attempts: int = 1
    told: str = ""  # what the launcher itself has to say
    copy: Path | None = None  # of the script, as it ran

    @cached_property
    def source(self) -> Source:
        """The learner's own code."""
        return Source(self.script, self.copy)

    @cached_property
    def rows(self) -> list[Row]:
        """The ranks' collectives, aligned."""
        return align.align(self.ledgers)

    @property
    def failed(self) -> list[int]:
        """The ranks that ended badly, and not because torchrun ended them."""
        return [rank for rank, code in self.codes.items() if code not in (0, -signal.SIGTERM)]

    def stderr(self, rank: int) -> str:
        """A rank's own words, of its last start."""
        return "\n".join(line.text for line in output.stderr_of(self.lines, rank))

    @cached_property
    def agent(self) -> list[str]:
        """torchrun's own lines."""
        return [line.text for line in self.lines if line.rank is None]

    def last(self, rank: int) -> Entry | None:
        """The last call of a rank."""
        mine = self.ledgers.get(rank)
        return mine.entries[-1] if mine is not None and mine.entries else None


# How long


def someone_failed(e: Evidence) -> bool:
    return e.ended == "failed" and bool(e.failed)


def threshold_s(e: Evidence) -> float:
    """How long a rank must have waited to be called waiting: not in a job that is merely busy."""
    return max(_TOO_EARLY_S if e.ended == "running" else 1.0, 4 * activity(e)[1])


def waited_long(e: Evidence, waiting: Iterable[int]) -> bool:
    """Whether ranks have waited too long for it to be chance, or somebody has failed by it."""
    return waited_s(e, waiting) >= threshold_s(e) or someone_failed(e)


def activity(e: Evidence) -> tuple[dict[int, float], float]:
    """({rank: when it last did something that left a trace}, the usual time between two)."""
    times: dict[int, list[float]] = {}
    for rank, mine in e.ledgers.items():
        times.setdefault(rank, []).extend(entry.t for entry in mine.entries)
    for event in e.events:
        times.setdefault(event["rank"], []).append(float(event["t"]))
    steps: list[float] = []
    for mine_t in times.values():
        mine_t.sort()
        gaps = [b - a for a, b in itertools.pairwise(mine_t[-12:])]
        steps.append(max(gaps, default=0.0))
    latest = {rank: mine_t[-1] for rank, mine_t in times.items() if mine_t}
    return latest, min(statistics.median(steps), 30.0) if steps else 0.0


def waited_s(e: Evidence, waiting: Iterable[int]) -> float:
    """The longest time that one of these ranks had waited in its last call when it told."""
    times = [0.0]
    for rank in waiting:
        if (last := e.last(rank)) is not None:
            times.append(e.ledgers[rank].t - last.t)
        said = re.search(r"Timed out waiting (\d+)ms", output.last_words(e.lines, rank))
        if said:
            times.append(int(said[1]) / 1000)
    return max(times)


def told_t(e: Evidence) -> float:
    """When the ranks were asked, or ended; one that left well told its own end, long before."""
    stayed = [mine.t for mine in e.ledgers.values() if mine.why != "exit"]
    return min(stayed or (mine.t for mine in e.ledgers.values()), default=e.now)


def last_step(e: Evidence, rank: int) -> int | None:
    steps = [n["step"] for n in e.events if n["rank"] == rank and isinstance(n.get("step"), int)]
    return steps[-1] if steps else None


# Where a rank is


def has_left(e: Evidence, rank: int) -> bool:
    """Whether a rank ended well before the others; of a plain launch only its ledger tells."""
    mine = e.ledgers.get(rank)
    told = mine is not None and mine.why == "exit" and mine.exit_code in (None, 0)
    return e.codes.get(rank) == 0 or (told and rank not in e.codes and e.ended != "finished")


def left_in_the_middle(e: Evidence, rank: int) -> bool:
    """Whether a rank that ended well did so by an exit inside its loop, not at the script's end."""
    mine = e.ledgers.get(rank)
    if mine is None:
        return True  # os._exit leaves no word
    return mine.in_group and e.source.may_exit_inside


def in_function(e: Evidence, rank: int, *names: str) -> bool:
    """Whether a rank is in one of these functions of torch.distributed."""
    mine = e.ledgers.get(rank)
    stack = mine.stack if mine is not None else ()
    return any("torch/distributed" in f.file and f.function in names for f in stack)


def in_loader(e: Evidence, rank: int) -> bool:
    """Whether a rank waits for a worker of its DataLoader."""
    mine = e.ledgers.get(rank)
    stack = [(f.file, f.function) for f in mine.stack] if mine is not None else [
        (file, function) for file, _, function in output.stack_of(e.lines, rank)
    ]  # fmt: skip
    return any(
        file.endswith("torch/utils/data/dataloader.py") and "get_data" in function
        for file, function in stack
    )


def in_spawn(e: Evidence, rank: int) -> bool:
    """Whether a rank waits for processes of torch.multiprocessing.spawn."""
    mine = e.ledgers.get(rank)
    return mine is not None and any(
        f.file.endswith("torch/multiprocessing/spawn.py") for f in mine.stack
    )


def is_importing(e: Evidence, rank: int) -> bool:
    """Whether a rank was in the middle of an import, of no module of the learner's."""
    mine = e.ledgers.get(rank)
    stack = mine.stack if mine is not None else ()
    files = [frame.file for frame in stack] or [f[0] for f in output.stack_of(e.lines, rank)]
    own = [i for i, file in enumerate(files) if e.source.is_own(file)]
    inner = files[own[-1] :] if own else files
    return any(file.startswith("<frozen importlib") for file in inner)


def is_compiling(e: Evidence, rank: int) -> bool:
    """Whether a rank was in torch.compile's compiler."""
    mine = e.ledgers.get(rank)
    return mine is not None and any("/torch/_inductor/" in frame.file for frame in mine.stack)


def in_call(e: Evidence, rank: int) -> Entry | None:
    """The collective or message in which a rank stands."""
    last = e.last(rank)
    inside = last is not None and any(
        "torch/distributed/distributed_c10d.py" in f.file for f in e.ledgers[rank].stack[-4:]
    )
    return last if inside else None


def path_to_call(e: Evidence, rank: int) -> list[tuple[str, int]]:
    """The learner's lines that led to a rank's last call, innermost first; none if it is past."""
    last = e.last(rank)
    if last is None or last.line is None:
        return []
    own = [(f.file, f.line) for f in reversed(e.ledgers[rank].stack) if e.source.is_own(f.file)]
    return own if place(last) in own else []


def blocked_in(e: Evidence, rank: int) -> str:
    """What a rank waits for that is no collective: "a lock or a thread"; "" if it is at work."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.stack:
        return ""
    inner = mine.stack[-1]
    if is_compiling(e, rank):
        return ""
    if inner.function == "_shutdown" and Path(inner.file).name == "threading.py":
        return "a thread of its own that has not ended"
    if not e.source.is_own(inner.file):
        if any("/multiprocessing/" in f.file for f in mine.stack[-6:]):
            return "another process that it started"
        return _WAITS.get(Path(inner.file).name, "")
    waits = re.search(r"\.(acquire|wait|join|get|recv|read|readline)\(|\binput\(", inner.code or "")
    return "something that did not come" if waits else ""


def waits_on_handle(e: Evidence, rank: int) -> bool:
    """Whether a rank stands in wait() on what isend, irecv or async_op=True gave it."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.stack or not e.source.is_own(mine.stack[-1].file):
        return False
    return ".wait(" in mine.stack[-1].code


def own_frame(e: Evidence, rank: int) -> Frame | None:
    mine = e.ledgers.get(rank)
    own = [frame for frame in (mine.stack if mine else ()) if e.source.is_own(frame.file)]
    return own[-1] if own else None


def place(entry: Entry) -> tuple[str, int] | None:
    return None if entry.line is None else (entry.line.file, entry.line.line)


# The same in words


def faulted_at(e: Evidence, rank: int) -> str:
    """ "train.py:12 (`code`)", from the stack that faulthandler printed."""
    own = [frame for frame in output.stack_of(e.lines, rank) if e.source.is_own(frame[0])]
    if not own:
        return ""
    file, line, _ = own[-1]
    return place_text(file, line, e.source.line(file, line))


def standing_at(e: Evidence, rank: int) -> str:
    """ "train.py:12 (`code`)": the learner's line at which a rank is."""
    if rank not in e.ledgers:
        return faulted_at(e, rank)
    own = own_frame(e, rank)
    if own is None:
        return ""
    inner = e.ledgers[rank].stack[-1]
    via = "" if inner is own else f", in {inner.function}"
    return f"{place_text(own.file, own.line, own.code)}{via}"


def raised_at(e: Evidence, rank: int, said: str) -> str:
    """ "train.py:12 (`code`)": where this exception came from, in the learner's code."""
    texts, mine = e.stderr(rank).splitlines(), e.ledgers.get(rank)
    end = len(texts) - 1 - texts[::-1].index(said) if said in texts else 0
    is_last = not any(text.startswith(_TRACEBACK) for text in texts[end + 1 :])
    if is_last and mine is not None and mine.exception is not None and (
        (at := mine.exception.line) and e.source.is_own(at.file)
    ):  # fmt: skip
        return place_text(at.file, at.line, at.code)
    for text in reversed(texts[:end]):
        frame = _TRACED.match(text)
        if frame and e.source.is_own(frame[1]):
            line = int(frame[2])
            return place_text(frame[1], line, e.source.line(frame[1], line))
        if text.startswith(_TRACEBACK):
            break
    return ""


def waiting_for(e: Evidence, rank: int) -> str:
    """ "ranks 0 and 2 waited for it in all_reduce #4 at …", if the ledgers tell."""
    entered = _entered_without(e, rank)
    if not entered:
        return ""
    verb = "waited" if e.ended != "running" else "wait" if len(entered) > 1 else "waits"
    return f"{named(entered)} {verb} for it in {call_text(next(iter(entered.values())))}"


def _entered_without(e: Evidence, rank: int) -> dict[int, Entry]:
    """The collective in which others were that this rank had not entered: {rank: entry}."""
    if rank in e.ledgers:
        for row in e.rows:
            entered = {r: n for r, n in row.entries.items() if n is not None and r != rank}
            mine = row.entries.get(rank)
            apart = mine is None or mine.op != next(iter(entered.values()), mine).op
            if entered and rank in row.entries and apart:
                return entered
        return {}
    last = {r: mine.entries[-1] for r, mine in e.ledgers.items() if mine.entries}
    if len({(n.group, n.n, n.op, n.p2p) for n in last.values()}) != 1:
        return {}
    return {r: n for r, n in last.items() if n.p2p is None}


def elsewhere(e: Evidence, ranks: Iterable[int]) -> str:
    """ "rank 1 was at train.py:12 (`lock.acquire()`)"."""
    told = [f"rank {rank} was at {at}" for rank in list(ranks)[:2] if (at := standing_at(e, rank))]
    return ", ".join(told)


def standing(e: Evidence) -> tuple[str, ...]:
    """Where each rank was, one line a rank."""
    told = []
    for rank, mine in sorted(e.ledgers.items()):
        last = f"; its last collective: {call_text(mine.entries[-1])}" if mine.entries else ""
        code = f" ({exit_text(e.codes[rank])})" if rank in e.codes else ""
        own = own_frame(e, rank)
        here = own is not None and mine.entries and place(mine.entries[-1]) == (own.file, own.line)
        if here and not blocked_in(e, rank):
            told.append(f"rank {rank}{code} was in {call_text(mine.entries[-1])}")
            continue
        at = standing_at(e, rank)
        told.append(f"rank {rank}{code} was {f'at {at}' if at else _without_own_line(mine)}{last}")
    return tuple(told)


def _without_own_line(mine: Ledger) -> str:
    """Where a rank was, if in no line of the learner's."""
    if not mine.stack or mine.stack[-1].function == "_shutdown":
        return "at its end"
    return f"in {mine.stack[-1].function} ({Path(mine.stack[-1].file).name})"


def limit(e: Evidence) -> str:
    """The run's limit, where it ended the run."""
    return f"{e.limit_s:g} s (limit_s)" if e.ended == "time-out" else ""
