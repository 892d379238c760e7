"""Reads what the ranks of a run print and report, while they do or afterwards.

Whatever a rank wrote is data: it is parsed as JSON or text, with limits, and never executed.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ddp_course import disk
from ddp_course.run import schema

_SEARCH_S = 0.15  # how often a live run's folder is searched for new files
_MAX_LINE = 20_000  # characters of one line that are kept
_MAX_EVENT = 1 << 20  # the same for an event, which may hold all weights of a small model
_MAX_READ = 4 << 20  # bytes of one file that are read at a time
_MAX_KEPT = 96 << 20  # bytes of memory for the lines of one file; its end is kept in any case
_LINE_BYTES = 300  # what a line takes beside its text
_MAX_TAIL = 64 << 10
_MAX_EVENTS = 64 << 20  # bytes of one rank's events that are read
_MAX_LINES = 512 << 20  # bytes of lines.jsonl; beyond it the logs are read, which have limits


Kind = Literal["stdout", "stderr"]
_KINDS: dict[str, Kind] = {"stdout": "stdout", "stderr": "stderr"}
_Stream = tuple[Path, int | None, int, Kind]  # a file, its rank, the attempt


@dataclass(frozen=True)
class Line:
    """One whole line of output."""

    t_s: schema.Seconds  # since the launch
    rank: schema.Rank | None  # None: torchrun itself
    stream: Kind
    text: str
    attempt: schema.Count = 0

    @property
    def words(self) -> str:
        """The text without the `[rank0]: ` that torch puts before a traceback's lines."""
        return self.text.removeprefix(f"[rank{self.rank}]: ")


class Reader:
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
        self._found: list[_Stream] = []
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

    def _streams(self, last: bool) -> list[_Stream]:
        """Searched for now and then, unless there is none yet: a live job feels each search."""
        if len(self._found) < 2 or last or time.monotonic() - self._searched_s > _SEARCH_S:
            self._found, self._searched_s = self._search(), time.monotonic()
        return self._found

    def _search(self) -> list[_Stream]:
        found: list[_Stream] = []
        patterns = "logs/*/attempt_*/*/std*.log", "logs/node-*/*/attempt_*/*/std*.log"
        for path in (path for pattern in patterns for path in self.folder.glob(pattern)):
            rank, attempt = path.parent.name, path.parent.parent.name.removeprefix("attempt_")
            node = path.parents[3].name.removeprefix("node-")
            if rank.isdigit() and attempt.isdigit() and (kind := _KINDS.get(path.stem)):
                # torchrun orders the nodes of one host by process id, and node 0 came first.
                before = int(node) * self._ranks_per_node if node.isdigit() else 0
                found.append((path, before + int(rank), int(attempt), kind))
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
        with contextlib.suppress(OSError), disk.open_file(path) as file:
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
        event = schema.event(text)
        if event is None:
            self.refused += 1
        else:
            self.events.append(event)


def _end_of(path: Path) -> list[str]:
    """The last lines of a file that is too long to be kept whole."""
    try:
        with disk.open_file(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MAX_TAIL))
            data = file.read(_MAX_TAIL)
    except OSError:
        return []
    return [line.decode(errors="replace")[:_MAX_LINE] for line in data.splitlines()[1:]]


def stored_lines(folder: Path) -> list[Line]:
    """The lines that the launcher kept, in order of arrival. Raises OSError, ValueError.

    The logs of the ranks hold them as well, without the order.
    """
    stored = disk.read_bytes(folder / "lines.jsonl", _MAX_LINES).splitlines()
    return [disk.parse_as(Line, one) for one in stored]
