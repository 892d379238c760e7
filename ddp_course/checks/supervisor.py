"""The trusted side of a check's job: draws the inputs, hands each rank its own, takes evidence.

    rank → {"event": "here", "rank": r}
    rank ← {"event": "load"}                          all ranks are here
    rank → {"event": "loaded"}                        the learner's file is imported
    rank ← {"event": "inputs"} + tensors              drawn now, for this rank only
    rank → {"event": "returned"} + tensors            what the function did
         | {"event": "raised", "error": …, "traceback": …}
    rank ← {"event": "leave"}                         when all have answered or time is up

    rank ← {"event": "where"}                         at any time in between, and its answer:
    rank → {"event": "at", "calls": …, "cpu_s": …, "line": …}

Over a Unix socket in a private folder. The inputs do not exist before every rank has imported the
learner's file, and no rank is sent another's, so right answers need real communication. Every rank
has its connection before any of them runs the learner's code, so nobody can come in its place.

A rank hangs when it answers several times in a row that nothing has moved: no collective started,
no processor time used. On a busy machine the answers come later, and so does the judgement. It
loops when it uses processor time, but starts no collective, or when it starts more of them than any
answer needs. A rank that answers nothing for much longer is stopped, or stands in compiled code.

Nothing here waits for a rank: what it does not read is kept up to a limit, and a rank that sends
more than any driver would is no longer heard.

With `restarts`, the driver may kill a rank on purpose. torchrun then starts all of them again; they
come back under the next attempt, get the same inputs, and only the last attempt is evidence.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ddp_course.checks.evidence import SOCKET, Malformed, Message, pack, split, unpack
from ddp_course.checks.manifest import PerRank, Tensors

_STILL = 10  # answers without progress, one each tenth of the patience: this rank waits in vain
_STILL_AFTER_AN_ERROR = 4  # the others may be about to raise too, or wait for the one that did
_ASK_S = 0.2  # how often a rank is asked at least then
_IDLE_S = 0.001  # of processor time: less is no progress
_LOOP_S = 5.0  # of processor time since its last collective: this rank will not come back
_IMPORT_LOOP_S = 15.0  # the same while it imports the learner's file, and what that imports
_MOST_CALLS = 10_000  # collectives; the right answers known need a few hundred
_SILENT = 3  # how often the patience fits into the time in which a rank must answer
_LIMIT = 12  # how often the patience fits into all the time
_MOST_UNREAD = 4 << 20  # bytes that a rank may leave unread: more than all that it is sent
_MOST_MESSAGES = 5_000  # of one rank
_MOST_CONNECTIONS = 4  # for each rank


class Job(Protocol):
    """What the supervisor needs to know of the run."""

    @property
    def done(self) -> bool: ...


@dataclass
class Observation:
    """What one rank did, as far as evidence goes.

    state   "absent" (never came), "here", "importing" (the learner's file), "loading" (has done
            so), "computing" (has its inputs, has not answered), "returned", "raised", "malformed",
            "gone" (left without an answer)
    """

    rank: int
    state: str = "absent"
    outputs: Tensors = field(default_factory=dict)
    error: str = ""  # "Type: text"
    traceback: str = ""
    place: int = 0  # 1 for the first rank that answered
    t: float = 0.0  # when it answered, by the clock that all ranks share
    calls: int | None = None  # collectives started inside the learner's function; None: not counted
    cpu_s: float = -1.0  # processor time of its main thread in the learner's file; -1: not known
    line: str = ""  # where it was in the learner's file when it was last asked
    still: int = 0  # answers in a row without progress
    moved_at_s: float = 0.0  # `cpu_s` when `calls` was last seen to change
    followed: bool = False  # ended by torchrun because another rank had gone
    busy: bool = False  # whether it still made progress, by its last answers, when time was up
    silent: bool = False  # whether it no longer answered when time was up
    asked_at: float = 0.0
    asked: bool = False

    @property
    def answered(self) -> bool:
        return self.state in ("returned", "raised", "malformed", "gone")


@dataclass
class Gathered:
    """All evidence of one job.

    inputs       empty if not every rank came far enough to get any
    began        whether the learner's code ran at all
    bytes_moved  what the meter counted between the inputs and the last answer; None: not metered
    stopped      why the job was ended from outside, if it was
    waited_s     since the ranks got the learner's file, or if they have them, their inputs
    attempt      how often all ranks have been started again
    """

    inputs: PerRank
    observations: list[Observation]
    began: bool = True
    bytes_moved: int | None = None
    stopped: str = ""
    waited_s: float = 0.0
    attempt: int = 0


@dataclass
class _Link:
    connection: socket.socket
    buffer: bytes = b""
    unsent: bytes = b""
    messages: int = 0
    rank: int | None = None


def listen(path: Path, backlog: int) -> socket.socket:
    """A Unix socket at `path`, which may be longer than the 107 bytes that an address holds."""
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        near = Path(f"/proc/self/fd/{folder}")  # Linux; elsewhere the path itself has to fit
        listener.bind(str((near if near.exists() else path.parent) / path.name))
    finally:
        os.close(folder)
    listener.listen(backlog)
    return listener


def _loops(one: Observation) -> bool:
    """Whether it has no end, as far as one can tell."""
    most_s = _LOOP_S if one.state == "computing" else _IMPORT_LOOP_S
    return (one.calls or 0) > _MOST_CALLS or one.cpu_s > one.moved_at_s + most_s


class Supervisor:
    """Listens while it is open. `env` tells the ranks where."""

    def __init__(
        self,
        ranks: int,
        draw: Callable[[np.random.Generator, int], PerRank],
        *,
        restarts: int = 0,
        folder: Path | None = None,
        meter: Callable[[], int] | None = None,
    ) -> None:
        """`folder`, if given, must be private to the trusted side; `meter` reads the
        bytes that the job's network has carried so far, and raises OSError when it cannot."""
        self._draw, self._meter = draw, meter
        self._began, self._since = False, time.monotonic()
        self._broken_at: float | None = None
        self._bytes_before: int | None = None
        self._bytes_moved: int | None = None
        self._attempt, self._restarts = 0, restarts
        self._seen = [Observation(rank) for rank in range(ranks)]
        self._inputs: PerRank = []
        self._links: dict[int, _Link] = {}  # by rank, once it has said which
        self._folder = Path(tempfile.mkdtemp(prefix="ddp-check-", dir=folder))
        self._selector = selectors.DefaultSelector()
        self._listener = listen(self._folder / "s", ranks)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def env(self) -> dict[str, str]:
        return {SOCKET: str(self._folder / "s")}

    @property
    def began(self) -> bool:
        """Whether the learner's code has been let run."""
        return self._began

    def gather(
        self,
        run: Job,
        *,
        patience_s: float,
        tell: Callable[[list[Observation]], None] | None = None,
    ) -> Gathered:
        """Serve the ranks until all have answered, the job is over, or those that have not answered
        have been without progress for `patience_s`.

        tell   called with all ranks after each round; it looks, and keeps nothing
        """
        while self._awaits_restart() or not all(one.answered for one in self._seen):
            over = run.done  # asked before listening, so that what came last is still heard
            for key, ready in self._selector.select(0.05):
                if key.data is None:
                    self._accept()
                elif ready & selectors.EVENT_READ:
                    self._hear(key.data)
                else:
                    self._flush(key.data)
            if tell:
                tell(self._seen)
            if self._awaits_restart() and not over:
                continue  # the launch has a limit of its own
            if all(one.state == "here" for one in self._seen):
                self._let_load()
            if self._ready():
                self._hand_out()
            if over or self._is_stuck(patience_s):
                break
            self._ask(patience_s)
        for one in self._active():
            one.silent = one.asked and time.monotonic() > one.asked_at + _SILENT * patience_s
            one.busy = not one.silent and one.cpu_s >= 0 and one.still < _STILL_AFTER_AN_ERROR
        for rank in list(self._links):
            self._send(rank, Message({"event": "leave"}))
        waited_s = time.monotonic() - self._since
        return Gathered(
            self._inputs,
            self._seen,
            self._began,
            self._bytes_moved,
            waited_s=waited_s,
            attempt=self._attempt,
        )

    def _active(self) -> list[Observation]:
        """The ranks that run the learner's code."""
        return [one for one in self._seen if one.state in ("importing", "computing")]

    def _broken(self) -> bool:
        return any(one.state in ("raised", "malformed", "gone") for one in self._seen)

    def _is_stuck(self, patience_s: float) -> bool:
        active = self._active()
        if not active:  # nobody is left to wait for, if one has failed; else they still start
            return self._broken() and not any(one.state in ("absent", "here") for one in self._seen)
        now, enough, silent_s = time.monotonic(), _STILL, _SILENT * patience_s
        if self._broken():
            self._broken_at, enough = self._broken_at or now, _STILL_AFTER_AN_ERROR
            if now > self._broken_at + patience_s:
                return True
        if now > self._since + _LIMIT * patience_s:
            return True
        return all(
            one.still >= enough or _loops(one) or (one.asked and now > one.asked_at + silent_s)
            for one in active
        )

    def _ask(self, patience_s: float) -> None:
        pause_s = patience_s / _STILL
        if self._broken():
            pause_s = min(pause_s, _ASK_S)
        now = time.monotonic()
        for one in self._active():
            if not one.asked and now >= one.asked_at + pause_s and one.rank in self._links:
                one.asked, one.asked_at = True, now
                self._send(one.rank, Message({"event": "where"}))

    def _note_place(self, seen: Observation, fields: dict[str, Any]) -> None:
        """What a rank says when it is asked where it is; an answer too late says nothing."""
        calls, cpu_s = _count(fields.get("calls")), fields.get("cpu_s")
        if type(cpu_s) is not float or not 0 <= cpu_s < 1e9:
            raise Malformed(f"a processor time of {cpu_s!r}")
        if not seen.asked or seen.answered:
            return
        moved = calls != seen.calls or cpu_s > seen.cpu_s + _IDLE_S
        if calls != seen.calls:
            seen.moved_at_s = cpu_s
        seen.asked, seen.still = False, 0 if moved else seen.still + 1
        seen.calls, seen.cpu_s, seen.line = calls, cpu_s, plain(fields.get("line"), 200)

    def _awaits_restart(self) -> bool:
        """Whether a rank is gone and torchrun will start all of them again."""
        gone = any(one.state == "gone" for one in self._seen)
        return gone and self._attempt < self._restarts

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again, or there is no descriptor left
            connection, _ = self._listener.accept()
            if len(self._selector.get_map()) > _MOST_CONNECTIONS * len(self._seen):
                connection.close()
                return
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, _Link(connection))

    def _let_load(self) -> None:
        self._began, self._since = True, time.monotonic()
        for one in self._seen:
            one.state, one.asked_at = "importing", self._since
            self._send(one.rank, Message({"event": "load"}))

    def _ready(self) -> bool:
        return all(one.state == "loading" for one in self._seen)

    def _hand_out(self) -> None:
        if not self._inputs:
            random = np.random.default_rng(int.from_bytes(os.urandom(16)))
            self._inputs = self._draw(random, len(self._seen))
        self._bytes_moved, self._since = None, time.monotonic()
        self._bytes_before = self._read_meter()
        for one, mine in zip(self._seen, self._inputs, strict=True):
            one.state, one.asked_at = "computing", self._since
            one.still, one.cpu_s, one.moved_at_s = 0, -1.0, 0.0
            self._send(one.rank, Message({"event": "inputs"}, mine))

    def _send(self, rank: int, message: Message) -> None:
        if link := self._links.get(rank):  # else it has gone
            link.unsent += pack(message)
            self._flush(link)

    def _flush(self, link: _Link) -> None:
        """Send what the rank takes now; the rest waits until it reads."""
        with contextlib.suppress(OSError):  # if it has gone, reading will tell
            link.unsent = link.unsent[link.connection.send(link.unsent) :]
        if len(link.unsent) > _MOST_UNREAD:
            return self._end(link, "malformed", "it does not read what the check sends")
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.unsent else 0)
        with contextlib.suppress(KeyError, ValueError):  # hung up meanwhile
            self._selector.modify(link.connection, wanted, link)
        return None

    def _hear(self, link: _Link) -> None:
        try:
            piece = link.connection.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            piece = b""
        if not piece:
            return self._end(link, "gone")
        link.buffer += piece
        try:
            body, link.buffer = split(link.buffer)
            while body is not None:
                link.messages += 1
                if link.messages > _MOST_MESSAGES:
                    raise Malformed("more messages than a check has")
                self._take(link, unpack(body))
                body, link.buffer = split(link.buffer)
        except (Malformed, RecursionError) as error:
            self._end(link, "malformed", plain(error, 300))
        return None

    def _end(self, link: _Link, state: str, error: str = "") -> None:
        self._hang_up(link)
        if link.rank is not None:
            self._links.pop(link.rank, None)
            seen = self._seen[link.rank]
            if not seen.answered:
                seen.error = error or seen.error
                self._answer(seen, state)

    def _hang_up(self, link: _Link) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it has been done already
            self._selector.unregister(link.connection)
        link.connection.close()

    def _start_over(self, attempt: int) -> None:
        for link in self._links.values():
            self._hang_up(link)
            link.rank = None  # what may still be heard of it concerns nobody
        self._attempt, self._links = attempt, {}
        self._seen = [Observation(one.rank) for one in self._seen]

    def _take(self, link: _Link, message: Message) -> None:
        event = message.fields.get("event")
        if link.rank is None:
            self._introduce(link, message.fields.get("rank"), message.fields.get("attempt"))
        assert link.rank is not None, "an introduction sets the rank or raises"
        seen = self._seen[link.rank]
        if event == "here" and seen.state == "absent":
            seen.state = "here"
        elif event == "loaded" and seen.state == "importing":
            seen.state = "loading"
        elif event == "at":
            self._note_place(seen, message.fields)
        elif event == "raised" and not seen.answered:
            seen.error = plain(message.fields.get("error"), 2000)
            seen.traceback = plain(message.fields.get("traceback"), 20_000)
            self._answer(seen, "raised", message.fields.get("t"))
        elif event == "returned" and seen.state == "computing":
            seen.outputs, seen.calls = message.tensors, _count(message.fields.get("calls"))
            self._answer(seen, "returned", message.fields.get("t"))
            if all(one.state == "returned" for one in self._seen):
                before, after = self._bytes_before, self._read_meter()
                if before is not None and after is not None:
                    self._bytes_moved = after - before
        else:
            raise Malformed(f"event {event!r} from a rank that is {seen.state}")

    def _introduce(self, link: _Link, rank: Any, attempt: Any) -> None:
        later = type(attempt) is int and self._attempt < attempt <= self._restarts
        if later and self._awaits_restart():
            self._start_over(attempt)
        if attempt != self._attempt:
            raise Malformed(f"a rank of attempt {attempt!r}")
        if type(rank) is not int or not 0 <= rank < len(self._seen) or rank in self._links:
            raise Malformed(f"a rank that calls itself {rank!r}")
        link.rank = rank
        self._links[rank] = link

    def _read_meter(self) -> int | None:
        with contextlib.suppress(OSError):
            return self._meter() if self._meter else None
        return None

    def _answer(self, seen: Observation, state: str, t: Any = None) -> None:
        seen.state = state
        seen.place = 1 + max(one.place for one in self._seen)
        seen.t = t if type(t) is float and 0 < t < time.monotonic() else time.monotonic()


def plain(text: Any, limit: int) -> str:
    """Text of a learner's rank, without what could move a terminal's cursor, and not too long."""
    kept = "".join(c for c in str(text or "")[: 2 * limit] if c.isprintable() or c in "\n\t")
    return kept[:limit]


def _count(calls: Any) -> int | None:
    if calls is not None and (type(calls) is not int or not 0 <= calls < 1e9):
        raise Malformed(f"a count of {calls!r}")
    return calls
