"""A run as data: a folder on disk, and the `Run` that reads it.

    run.json            what was asked: job, ranks, knobs, command, environment, limits
    job.py              a copy of the script
    events-<rank>.jsonl what each rank reported (ddp_course.rank.report)
    ledger-<rank>-<attempt>.json  what each rank communicated (ddp_course.observe.scribe)
    trace-<rank>.json   each rank's profile, if it was traced
    logs/…              torchrun's own log folder: every rank's stdout, stderr and error file
    torchrun.log        what torchrun itself printed
    lines.jsonl         all of it in order of arrival, tagged by rank
    result.json         exit codes, wall time, failure

Everything that shows or judges a run reads the folder, so a run can be reopened tomorrow. What a
rank wrote is data: it is parsed as JSON or text, with limits, and never executed.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted
from ddp_course.disk import PACKAGE
from ddp_course.errors import BadArgument, CannotRun, NoEvidence, NoSuchRun

KEEP_RUNS = 100
KEEP_DAYS = 14
_SEARCH_S = 0.15  # how often a live run's folder is searched for new files
_MAX_LINE = 20_000  # characters of one line that are kept
_MAX_EVENT = 1 << 20  # the same for an event, which may hold all weights of a small model
_MAX_READ = 4 << 20  # bytes of one file that are read at a time
_MAX_KEPT = 96 << 20  # bytes of memory for the lines of one file; its end is kept in any case
_LINE_BYTES = 300  # what a line takes beside its text
_MAX_TAIL = 64 << 10
_MAX_EVENTS = 64 << 20  # bytes of one rank's events that are read
_MAX_LINES = 512 << 20  # bytes of lines.jsonl; beyond it the logs are read, which have limits
_MOST_RANKS = 4096  # of a folder that claims to be a run
_NAME = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{4}")


@dataclass(frozen=True)
class Line:
    """One whole line of output."""

    t_s: float  # seconds since the launch
    rank: int | None  # None: torchrun itself
    stream: str  # "stdout" or "stderr"
    text: str
    attempt: int = 0

    @property
    def words(self) -> str:
        """The text without the `[rank0]: ` that torch puts before a traceback's lines."""
        return self.text.removeprefix(f"[rank{self.rank}]: ")


@dataclass
class Lane:
    """What a rank is doing, as far as the launcher knows: one row of the live panel."""

    rank: int
    state: str = "waiting"  # running, paused, done, failed, killed, stopped
    pid: int | None = None
    attempt: int = 0
    step: int | None = None
    loss: float | None = None
    last_line: str = ""
    exit_code: int | None = None  # negative: ended by that signal; None: not known
    doing: str = ""  # now: "computes", "paused", "waits in all_reduce"; "" if it does not run
    since_s: float = 0.0  # for how long it has been waiting


@dataclass(frozen=True)
class Failure:
    """What went wrong first, and what merely followed."""

    rank: int | None  # None: no single rank, or torchrun itself
    what: str  # one sentence
    exit_code: int | None = None
    traceback: str = ""
    where: dict[int, str] = field(default_factory=dict)  # rank -> where it was when time ran out
    consequences: dict[int, str] = field(default_factory=dict)  # rank -> what it said afterwards
    kind: str = ""  # as ddp_course.diagnosis.diagnose names it: "never-arrived", …
    remedy: str = ""
    lesson: str = ""
    table: str = ""  # torchrun's own account

    def __str__(self) -> str:
        return failure_text(self)

    __repr__ = __str__


def runs_folder() -> Path:
    """Where runs are kept: $DDP_COURSE_RUNS, else `runs/` of the course, else the user's cache."""
    if os.environ.get("DDP_COURSE_RUNS"):
        return Path(os.environ["DDP_COURSE_RUNS"]).expanduser().absolute()
    course = PACKAGE.parent
    if (course / "pyproject.toml").is_file() and os.access(course, os.W_OK):
        return course / "runs"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "ddp-course" / "runs"


def new_folder(job: str) -> Path:
    """Make the folder of a new run, and prune old ones. Raises CannotRun if there is no room."""
    root = runs_folder()
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:40] or "job"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        root.mkdir(parents=True, exist_ok=True)
        prune(root)
        while True:
            folder = root / f"{stamp}-{safe}-{os.urandom(2).hex()}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise no_room(root, error) from error


def no_room(folder: Path, error: OSError) -> CannotRun:
    """The error for a run folder that cannot be written."""
    return CannotRun(
        f"The run cannot be recorded in {folder}: {error.strerror or error}.",
        cause="the disk is full, the folder is not yours to write, or somebody has removed it",
        action="make room there, or set DDP_COURSE_RUNS to a folder with room",
    )


def prune(root: Path, *, keep: int = KEEP_RUNS, days: float = KEEP_DAYS) -> list[Path]:
    """Remove runs beyond `keep` or older than `days`, except those in use; return what went."""
    folders = sorted((f for f in root.iterdir() if _NAME.fullmatch(f.name)), reverse=True)
    gone: list[Path] = []
    for number, folder in enumerate(folders, start=1):
        with contextlib.suppress(OSError):
            age_s = time.time() - folder.stat().st_mtime
            if age_s < 60 or (number <= keep and age_s < days * 86400):
                continue
            with Lock(folder, exclusive=True) as lock:
                if lock.held:
                    shutil.rmtree(folder, ignore_errors=True)
                    gone.append(folder)
    return gone


class Lock:
    """Marks a run folder as in use for as long as it is held (flock on the folder itself)."""

    _descriptor = -1

    def __init__(self, folder: Path, *, exclusive: bool = False) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self.held = True
        try:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            self.held = False

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    __del__ = release


class Record:
    """Reads a run's folder piece by piece, while it is written or afterwards."""

    def __init__(self, folder: Path, ranks_per_node: int = 1) -> None:
        self.folder, self._ranks_per_node = folder, ranks_per_node
        self.lines: list[Line] = []
        self.events: list[dict[str, Any]] = []
        self.refused = 0  # events that were not well-formed
        self._offsets: dict[Path, int] = {}
        self._inodes: dict[Path, int] = {}
        self._pieces: dict[Path, bytes] = {}
        self._room: dict[Path, int] = {}  # bytes of memory that its lines may still take
        self._found: list[tuple[Path, int | None, int, str]] = []
        self._searched_s = 0.0

    def poll(self, now_s: float, *, last: bool = False) -> bool:
        """Take in what was written since; return whether anything was. `last` ends open lines."""
        before = len(self.lines), len(self.events)
        for path, rank, attempt, stream in self._streams(last):
            for text in self._new_lines(path, last):
                shown = text.rstrip("\r").rsplit("\r", 1)[-1]  # what a terminal would show
                self.lines.append(Line(now_s, rank, stream, shown, attempt))
        for path in sorted(self.folder.glob("events-*.jsonl")):
            for text in self._new_lines(path, last, longest=_MAX_EVENT, most=_MAX_EVENTS):
                self._take_event(text)
        return (len(self.lines), len(self.events)) != before

    def _streams(self, last: bool) -> list[tuple[Path, int | None, int, str]]:
        """Searched for now and then, unless there is none yet: a live job feels each search."""
        if len(self._found) < 2 or last or time.monotonic() - self._searched_s > _SEARCH_S:
            self._found, self._searched_s = self._search(), time.monotonic()
        return self._found

    def _search(self) -> list[tuple[Path, int | None, int, str]]:
        found: list[tuple[Path, int | None, int, str]] = []
        patterns = "logs/*/attempt_*/*/std*.log", "logs/node-*/*/attempt_*/*/std*.log"
        for path in (path for pattern in patterns for path in self.folder.glob(pattern)):
            rank, attempt = path.parent.name, path.parent.parent.name.removeprefix("attempt_")
            node = path.parents[3].name.removeprefix("node-")
            if rank.isdigit() and attempt.isdigit() and path.stem in ("stdout", "stderr"):
                # torchrun orders the nodes of one host by process id, and node 0 came first.
                before = int(node) * self._ranks_per_node if node.isdigit() else 0
                found.append((path, before + int(rank), int(attempt), path.stem))
        found.sort(key=lambda one: one[1:])
        return [*found, (self.folder / "torchrun.log", None, 0, "stderr")]

    def _new_lines(
        self, path: Path, last: bool, *, longest: int = _MAX_LINE, most: int = _MAX_KEPT
    ) -> list[str]:
        """What came since, as lines; beyond `most` bytes a word about that, at last the end."""
        offset, room = self._offsets.get(path, 0), self._room.get(path, most)
        data = self._pieces.get(path, b"")
        full = room <= 0
        with contextlib.suppress(OSError):
            seen = path.stat()
            if not last and (seen.st_ino, seen.st_size) == (self._inodes.get(path), offset):
                return []
        with contextlib.suppress(OSError), untrusted.open_file(path) as file:
            inode = os.fstat(file.fileno()).st_ino
            if self._inodes.setdefault(path, inode) != inode:  # a node that came back began it anew
                self._inodes[path], offset, data = inode, 0, b""
            while os.fstat(file.fileno()).st_size > offset and room > 0:
                file.seek(offset)
                piece = file.read(_MAX_READ)
                offset += len(piece)
                data += piece
                room -= len(piece) + _LINE_BYTES * piece.count(b"\n")
                if not last or not piece:
                    break
        self._offsets[path], self._room[path] = offset, room
        *whole, rest = data.split(b"\n")
        if last and rest:
            whole, rest = [*whole, rest], b""
        self._pieces[path] = rest[: 4 * longest]  # UTF-8 takes at most four bytes a character
        if room < 0:
            whole = whole[: len(whole) + room // _LINE_BYTES]
        texts = [line.decode(errors="replace") for line in whole]
        texts = [text if len(text) <= longest else f"{text[:longest]} …" for text in texts]
        if room <= 0 and not full:
            texts.append(f"… more than is kept; all of it is in {path}")
        ended = room <= 0 and last and longest == _MAX_LINE
        return [*texts, *_end_of(path)] if ended else texts

    def _take_event(self, text: str) -> None:
        try:
            event = untrusted.parse_json(text)
            ok = _whole(event["rank"], _MOST_RANKS) and isinstance(event["event"], str)
            ok = ok and _whole(event.setdefault("attempt", 0), 1 << 30) and _seconds(event["t"])
        except (ValueError, TypeError, KeyError, AttributeError):
            ok = False
        if ok:
            self.events.append(event)
        else:
            self.refused += 1


def _whole(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 1e15  # false for NaN


def _end_of(path: Path) -> list[str]:
    """The last lines of a file that is too long to be kept whole."""
    try:
        with untrusted.open_file(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MAX_TAIL))
            data = file.read(_MAX_TAIL)
    except OSError:
        return []
    return [line.decode(errors="replace")[:_MAX_LINE] for line in data.splitlines()[1:]]


def _stored_line(stored: bytes) -> Line:
    """One line of lines.jsonl. Raises ValueError or TypeError."""
    line = Line(**untrusted.parse_json(stored))
    ranked = line.rank is None or _whole(line.rank, _MOST_RANKS)
    texts = isinstance(line.text, str) and line.stream in ("stdout", "stderr")
    if not (ranked and texts and _seconds(line.t_s) and _whole(line.attempt, 1 << 30)):
        raise ValueError("no line of output")
    return line


# What other rooms read of run.json beside what every run must have: name -> the types it may have.
_ASKED: dict[str, tuple[type, ...]] = {
    "job": (str,), "command": (str,), "knobs": (dict,), "script": (str,), "cwd": (str,),
    "argv": (list,), "env": (dict,), "warm": (bool,), "trace": (bool,), "limit_s": (int, float),
    "created": (int, float), "restarts": (int,),
}  # fmt: skip


def _check_asked(asked: dict[str, Any]) -> None:
    for name, types in _ASKED.items():
        if name in asked and type(asked[name]) not in types:
            raise ValueError(f"{name} cannot be a {type(asked[name]).__name__}")
    ranks, nodes = asked["ranks"], asked.get("nodes", 1)
    if not (_whole(ranks, _MOST_RANKS + 1) and _whole(nodes, ranks + 1) and nodes):
        raise ValueError("its record is not complete")
    times = [asked[name] for name in ("limit_s", "created") if name in asked]
    words = [*asked.get("argv", []), *asked.get("env", {}).values()]
    if not all(map(_seconds, times)) or not all(isinstance(word, str) for word in words):
        raise ValueError("its record is not in order")


_TEXTS = "what", "traceback", "kind", "remedy", "lesson", "table"  # of a failure


def _check_result(result: dict[str, Any]) -> None:
    codes = result.get("exit_codes", {}).values()
    if not all(_whole(abs(code), 1 << 30) for code in codes):
        raise ValueError("an exit code is none")
    times = result["wall_s"], result.get("began", 0.0)
    if not (all(map(_seconds, times)) and isinstance(result["ended"], str)):
        raise ValueError("its result is not complete")
    if not all(
        _seconds(death["t"]) and _whole(death["rank"], _MOST_RANKS)
        and _whole(death["attempt"], 1 << 30) and _whole(abs(death["exit_code"]), 1 << 30)
        for death in result.get("deaths", [])
    ):  # fmt: skip
        raise ValueError("its list of deaths is not in order")
    failure = result.get("failure") or {}
    told = [failure.get(name, "") for name in _TEXTS]
    for name in ("where", "consequences"):
        told += failure.get(name, {}).values()
    if not all(isinstance(text, str) for text in told):
        raise ValueError("its failure is no text")
    if failure.get("rank") is not None and not _whole(failure["rank"], _MOST_RANKS):
        raise ValueError("its failure names no rank")


class Control:
    """How a live run is controlled; the launcher fills it in."""

    def __init__(self) -> None:
        self.stop: Callable[[str], None] = lambda why: None
        self.signal: Callable[[int, int], None] = lambda rank, number: None
        self.node: Callable[[str], None] = lambda how: None
        self.ask: Callable[[float], bool] = lambda patience_s: False


class Run:
    """One launch: live while it runs, and the same object afterwards.

    Whatever needs the result waits for it: `ok`, `exit_codes`, `wall_s`, `lines`, `metrics`,
    `failure` and the rest. `state`, `lanes()`, `tail()` and `elapsed_s` answer at once.
    """

    def __init__(self, folder: Path, asked: dict[str, Any], control: Control | None = None) -> None:
        self.folder = folder
        self.job: str = asked["job"]
        self.ranks: int = asked["ranks"]
        self.knobs: dict[str, Any] = asked["knobs"]
        self.command: str = asked["command"]
        self.asked = asked
        self.state = "queued"
        self.dump_s = math.inf  # when, at a time-out, the ranks were made to write their stacks
        self.stop_s = math.inf  # when you stopped it: torchrun then only tells how it ends
        self.shown_in: object = None  # the notebook cell that has already displayed this run
        self._control = control
        self.nodes: int = asked.get("nodes", 1)
        self._record = Record(folder, self.ranks // self.nodes)
        self._result: dict[str, Any] = {}
        self._lanes = {rank: Lane(rank) for rank in range(self.ranks)}
        self._finished = threading.Event()
        self._started = time.monotonic()
        self._callbacks: list[Callable[[Run], None]] = []
        self._lock = Lock(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Reopen a finished run. Raises NoSuchRun if the folder is not one."""
        folder = Path(folder)
        try:
            asked = untrusted.read_json(folder / "run.json")
            result = untrusted.read_json(folder / "result.json")
            _check_asked(asked)
            _check_result(result)
            run = cls(folder, {name: asked[name] for name in ("job", "ranks", "knobs", "command")})
            run.asked, run.nodes = asked, int(asked.get("nodes", 1))
            run._record = Record(folder, max(1, run.ranks // max(1, run.nodes)))
            run._record.poll(0.0, last=True)
            with contextlib.suppress(OSError, ValueError, TypeError):  # the logs hold them as well
                stored = untrusted.read_bytes(folder / "lines.jsonl", _MAX_LINES).splitlines()
                run._record.lines = [_stored_line(line) for line in stored]
            run._close(result)
            str(run), run._repr_html_(), run.exit_codes  # whatever is amiss shows here
        except (
            OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError
        ) as error:  # fmt: skip
            raise NoSuchRun(
                f"{folder} is not a finished run ({type(error).__name__}: {error}).",
                cause="another folder, a run still under way, or a file that was damaged",
                action=f"choose a folder in {runs_folder()}",
            ) from error
        return run

    # What answers at once

    @property
    def done(self) -> bool:
        return self._finished.is_set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the job was started; the wall time once it is done."""
        if self.done:
            return float(self._result.get("wall_s", 0.0))
        return 0.0 if self.state == "queued" else time.monotonic() - self._started

    def lanes(self) -> list[Lane]:
        """One row for each rank, with what it does now."""
        lanes = [self._lanes[rank] for rank in sorted(self._lanes)]
        for lane in lanes:
            lane.doing, lane.since_s = self._doing(lane)
        return lanes

    def _doing(self, lane: Lane) -> tuple[str, float]:
        """What the rank last told of itself (observe/recorder/doing.py), and for how many s."""
        if lane.state != "running" or self.done:
            return ("paused" if lane.state == "paused" else ""), 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = untrusted.read_json(self.folder / f"doing-{lane.rank}.json", 10_000)
            if told["waits"] and told["attempt"] == lane.attempt:
                call, line = str(told["call"])[:60], told["line"]
                where = f"in {call}" if call else "somewhere"
                if line is not None and not call:
                    where = f"at {Path(str(line['file'])).name[:60]}, line {int(line['line'])}"
                return f"waits {where}", max(0.0, time.time() - float(told["t"]))
        return "computes", 0.0

    def tail(self, count: int = 20) -> list[Line]:
        """The last lines so far, without what a time-out or a stop made them write.

        Those are the ranks' stacks, and the traceback by which torchrun ends.
        """
        ends_s = min(self.dump_s, self.stop_s)
        lines = [
            line
            for line in self._record.lines
            if line.t_s <= (ends_s if line.rank is None else self.dump_s)
        ]
        return lines[max(0, len(lines) - count) :]

    def subscribe(self, callback: Callable[[Run], None]) -> None:
        """Call back, from the launcher's thread, whenever something changed and once at the end."""
        self._callbacks.append(callback)
        if self.done:
            callback(self)

    # Control

    def stop(self) -> None:
        """End the run now, with everything that it started."""
        if self._control is not None and not self.done:
            self._control.stop("stopped")

    def pause(self, rank: int) -> None:
        """SIGSTOP: the rank stands still, and the others will wait for it."""
        self._signal(rank, signal.SIGSTOP)

    def resume(self, rank: int) -> None:
        """SIGCONT: the rank goes on."""
        self._signal(rank, signal.SIGCONT)

    def kill(self, rank: int) -> None:
        """SIGKILL: the rank is gone without a word, as if it had run out of memory."""
        self._signal(rank, signal.SIGKILL)

    def ask(self, *, patience_s: float = 2.0) -> bool:
        """Make every rank that runs write its ledger now (ddp_course.observe.ledger); nothing ends.

        Returns whether all have, within `patience_s` seconds. A paused rank cannot answer.
        """
        return self._control is not None and not self.done and self._control.ask(patience_s)

    def lose_node(self) -> None:
        """The last node is gone, torchrun and ranks, as if its machine had lost power."""
        self._move_node("lose")

    def return_node(self) -> None:
        """A torchrun is started in the place of the node that was lost."""
        self._move_node("return")

    def _move_node(self, how: str) -> None:
        if self.nodes == 1:
            raise ValueError(
                "This run has one node; launch(…, nodes=2) makes one that can be lost."
            )
        if self._control is not None and not self.done:
            self._control.node(how)

    def _signal(self, rank: int, number: int) -> None:
        if rank not in self._lanes:
            raise ValueError(
                f"There is no rank {rank!r}; this run has ranks 0 to {self.ranks - 1}."
            )
        if self._control is not None and not self.done:
            self._control.signal(rank, number)

    # What waits for the result

    def wait(self) -> Run:
        """Wait for the end. Interrupting it stops the run."""
        try:
            while not self._finished.wait(0.1):
                pass
        except BaseException:
            self.stop()
            self._finished.wait(5)
            raise
        return self

    def wait_for_step(self, step: int) -> Run:
        """Wait until every rank that lives has logged this step, or the run has ended."""
        try:
            while not self.done and not self._all_reached(step):
                self._finished.wait(0.02)
        except BaseException:
            self.stop()
            raise
        return self

    def _all_reached(self, step: int) -> bool:
        living = [lane for lane in self.lanes() if lane.state in ("waiting", "running", "paused")]
        reached = [lane.step is not None and lane.step >= step for lane in living]
        return bool(reached) and all(reached)

    @property
    def result(self) -> dict[str, Any]:
        """All that is known of how it ended (result.json)."""
        return self.wait()._result

    @property
    def ok(self) -> bool:
        """Whether torchrun ended with exit code 0."""
        return self.ended == "finished"

    @property
    def ended(self) -> str:
        """How it ended: "finished", "failed", "time-out" or "stopped"."""
        return str(self.result.get("ended", "failed"))

    @property
    def exit_codes(self) -> dict[int, int]:
        """{rank: exit code}, negative for a signal; a rank whose end nobody saw is left out."""
        return {int(rank): code for rank, code in self.result.get("exit_codes", {}).items()}

    @property
    def wall_s(self) -> float:
        """Seconds from the launch to its end."""
        return float(self.result["wall_s"])

    @property
    def failure(self) -> Failure | None:
        """What went wrong first; None if nothing did."""
        said = self.result.get("failure")
        if said is None:
            return None
        by_rank = {
            name: {int(rank): text for rank, text in said.get(name, {}).items()}
            for name in ("where", "consequences")
        }
        return Failure(**{**said, **by_rank})

    @property
    def lines(self) -> list[Line]:
        """Every line of output, in order of arrival."""
        self.wait()
        return list(self._record.lines)

    def lines_of(self, rank: int | None, stream: str | None = None) -> list[str]:
        """The lines of one rank (None: torchrun's own)."""
        return [
            line.text for line in self.lines if line.rank == rank and stream in (None, line.stream)
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the ranks reported, rank after rank, each in its order."""
        self.wait()
        return sorted(self._record.events, key=lambda event: int(event["rank"]))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What the ranks logged: the events of report.log()."""
        return [event for event in self.events if event["event"] == "log"]

    def values(self, name: str, rank: int = 0) -> list[Any]:
        """All values that a rank logged under this name, in order."""
        return [m[name] for m in self.metrics if m["rank"] == rank and name in m]

    def value(self, name: str, rank: int = 0) -> Any:
        """The last value that a rank logged under this name. Raises NoEvidence if there is none."""
        values = self.values(name, rank)
        if not values:
            logged = sorted({key for m in self.metrics for key in m} - {"t", "rank", "event"})
            cause = "the run ended before it" if not self.ok else "another name"
            there = rank in self._lanes
            raise NoEvidence(
                f"Rank {rank} of {self.job} logged no {name!r}.",
                cause=cause if there else f"it has {counted(self.ranks)}, from 0 on",
                action=f"it has: {', '.join(logged) or 'nothing'}; see run.failure and run.lines",
            )
        return values[-1]

    def by_rank(self, name: str) -> dict[int, Any]:
        """{rank: the last value that it logged under this name}, in the order of ranks."""
        last = {m["rank"]: m[name] for m in self.metrics if name in m}
        return {rank: last[rank] for rank in sorted(last)}

    @property
    def traces(self) -> dict[int, Path]:
        """{rank: its profile}, for a run that was traced."""
        self.wait()
        found = {rank: self.folder / f"trace-{rank}.json" for rank in range(self.ranks)}
        return {rank: path for rank, path in found.items() if path.is_file()}

    # How it shows itself

    def summary(self) -> str:
        """One line: how it ended."""
        ended = {"finished": "ok", "failed": "FAILED", "time-out": "TIME-OUT", "stopped": "stopped"}
        how = ended[self.ended] if self.done else self.state
        return f"{self.job}: {how}, {counted(self.ranks)}, {self.elapsed_s:.2f} s"

    def __repr__(self) -> str:
        return f"<Run {self.summary()}>"

    def __str__(self) -> str:
        self.wait()
        parts = [f"$ {self.command}", self.summary(), *self._values_said()]
        if self.failure is not None:
            parts += ["", failure_text(self.failure)]
        return "\n".join(parts)

    def _values_said(self) -> list[str]:
        place = next((e for e in self.events if e["event"] == "place"), None)
        return [str(place.get("why", ""))] if place else []

    def _repr_html_(self) -> str:
        self.wait()
        mark, colour = {"finished": ("✓", "#117733"), "stopped": ("■", "#9a6700")}.get(
            self.ended, ("✗", "#aa3344")
        )
        rows = [
            f"<div><b style='color:{colour}'>{mark}</b> {html.escape(self.summary())}</div>",
            *(f"<div>{html.escape(text)}</div>" for text in self._values_said()),
            "<details><summary>the exact command</summary><pre style='white-space:pre-wrap'>"
            f"{html.escape(self.command)}</pre></details>",
        ]
        if self.failure is not None:
            rows.append(failure_html(self.failure))
        return f"<div class='ddp-run'>{''.join(rows)}</div>"

    # The launcher's side

    def _begin(self) -> None:
        self.state, self._started = "starting", time.monotonic()

    def _poll(self, *, last: bool = False) -> bool:
        lines, events = len(self._record.lines), len(self._record.events)
        changed = self._record.poll(self.elapsed_s, last=last)
        for event in self._record.events[events:]:
            lane = self._lanes.get(event["rank"])
            if lane is not None and event["event"] == "log":
                lane.step = event["step"] if isinstance(event.get("step"), int) else lane.step
                loss = event.get("loss")
                with contextlib.suppress(OverflowError):  # an integer beyond any float
                    lane.loss = float(loss) if isinstance(loss, int | float) else lane.loss
        fresh = self._record.lines[lines:]
        for line in fresh:
            if line.rank in self._lanes and line.text.strip() and line.t_s <= self.dump_s:
                self._lanes[line.rank].last_line = line.words
        if fresh:
            text = "".join(json.dumps(vars(line)) + "\n" for line in fresh)
            with contextlib.suppress(OSError):
                untrusted.append(self.folder / "lines.jsonl", text)
        return changed

    def _changed(self) -> None:
        for callback in list(self._callbacks):
            with contextlib.suppress(Exception):
                callback(self)

    def _close(self, result: dict[str, Any]) -> None:
        self._result = result
        codes = {int(rank): code for rank, code in result.get("exit_codes", {}).items()}
        for lane in self._lanes.values():
            lane.exit_code = codes.get(lane.rank)
            lane.state = _final_state(lane.exit_code, result.get("ended") == "finished")
        self.state = "done"
        self._finished.set()
        self._changed()


def _final_state(exit_code: int | None, finished: bool) -> str:
    if exit_code == 0 or (exit_code is None and finished):
        return "done"
    if exit_code in (None, -signal.SIGTERM):
        return "stopped"
    return "killed" if exit_code == -signal.SIGKILL else "failed"


def check_run(value: object) -> None:
    """Raise BadArgument unless this is a run."""
    if not hasattr(value, "wait"):
        raise BadArgument(
            f"A run is what launch returns, not {str(value)[:100]!r}.",
            action="run = launch(…), or Run.open(folder) for one that is over",
        )


def exit_text(code: int | None) -> str:
    """An exit code in words: "exit code 3", "killed by SIGKILL (-9)"."""
    if code is None:
        return "exit code not seen"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name} ({code})"
    return f"exit code {code}"


def counted(number: int, what: str = "rank") -> str:
    """ "1 rank", "2 ranks"."""
    return f"{number} {what}" + "s" * (number != 1)


def _heading(failure: Failure) -> str:
    return "What happened" if failure.rank is None else "First failure"


def failure_text(failure: Failure) -> str:
    """A failure as text: what followed first and short, the cause last and whole."""
    parts = [f"  then rank {rank}: {text}" for rank, text in failure.consequences.items()]
    if failure.traceback:
        parts += ["", failure.traceback.rstrip()]
    parts += [f"  rank {rank} was {text}" for rank, text in failure.where.items()]
    parts += ["", f"{_heading(failure).upper()}: {failure.what}"]
    parts += [f"WHAT TO DO: {failure.remedy}"] if failure.remedy else []
    parts += [f"LESSON: {failure.lesson}"] if failure.lesson else []
    return "\n".join(parts).lstrip("\n")


def failure_html(failure: Failure) -> str:
    """The same as HTML: consequences folded, the cause last and largest."""
    parts: list[str] = []
    if failure.consequences:
        told = "".join(
            f"<div>rank {rank}: {html.escape(text)}</div>"
            for rank, text in failure.consequences.items()
        )
        count = len(failure.consequences)
        parts.append(
            f"<details><summary>what followed on {counted(count)}</summary>{told}</details>"
        )
    if failure.table:
        parts.append(
            "<details><summary>torchrun's own account</summary><pre style='white-space:pre-wrap'>"
            f"{html.escape(failure.table)}</pre></details>"
        )
    if failure.traceback:
        trace = html.escape(failure.traceback.rstrip())
        parts.append(f"<pre style='white-space:pre-wrap'>{trace}</pre>")
    if failure.where:
        where = "\n".join(f"rank {rank} was {text}" for rank, text in failure.where.items())
        parts.append(f"<pre style='white-space:pre-wrap'>{html.escape(where)}</pre>")
    parts.append(
        f"<div style='font-size:120%'><b>{_heading(failure)}: {html.escape(failure.what)}</b></div>"
    )
    return "".join([*parts, advice_html(failure.remedy, failure.lesson)])


def advice_html(remedy: str, lesson: str) -> str:
    """What to do, and the lesson that teaches it (a link, where its notebook is), as HTML."""
    parts = [f"<div><b>What to do:</b> {html.escape(remedy)}</div>"] if remedy else []
    if lesson:
        text = html.escape(lesson)
        number, _, section = lesson.partition(" ")
        notebooks = PACKAGE.parent / "notebooks"
        for path in sorted(notebooks.glob(f"{number}_*.ipynb"))[:1] if number.isdigit() else []:
            place = html.escape(f"{path.name}#{section.replace(' ', '-')}", quote=True)
            text = f'<a href="{place}">{text}</a>'
        parts.append(f"<div><b>Lesson:</b> {text}</div>")
    return "".join(parts)
