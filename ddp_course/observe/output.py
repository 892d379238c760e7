"""What a failed run's output tells: which rank failed first, and what merely followed.

The loudest rank is often a victim: when one rank dies, its peers report a closed connection. The
rule: a rank whose last words are about a broken connection comes after any rank that says something
else; among equals the earliest comes first. torchrun's own table gives the exit codes that nobody
else has seen.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ddp_course.run.failure import exit_text
from ddp_course.run.reader import Line

# What Gloo, NCCL and torchrun say when it was another rank that went.
_FOLLOWED = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|connectFullMesh failed|remote process exited"
    r"|Timed out waiting \d+ms|NCCL communicator was aborted|DistNetworkError|Connection refused"
    r"|RendezvousClosedError|successfully reached monitoredBarrier"
    r"|Application timeout caused pair closure"
)
_TABLE_ROW = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\s+exitcode\s+: (-?\d+) \(pid")
_TOLD = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\) of binary")
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b")
_HANDLED = "During handling of the above exception, another exception occurred:"
_GROUP = re.compile(r"  \| ([\w.]*ExceptionGroup: .*)")
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.* \(most recent call first\):")
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_PREFIX = re.compile(r"\[rank\d+\]: ")  # torch puts it before each line of a traceback
ABORT_AT_EXIT = "terminate called without an active exception"


@dataclass
class Observed:
    """What the launcher saw of a run, beside its output."""

    deaths: list[tuple[float, int, int]] = field(default_factory=list)  # (t_s, rank, exit code)
    killed: dict[int, int] = field(default_factory=dict)  # rank -> the signal that the learner sent
    paused: set[int] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    halted: set[int] = field(default_factory=set)  # stopped by somebody else, when time ran out

    def record(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        return {
            "deaths": self.deaths,
            "killed": self.killed,
            "paused": sorted(self.paused),
            "started": sorted(self.started),
            "halted": sorted(self.halted),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Observed:
        """What `record` made; nothing of what somebody else made."""
        try:
            deaths = [(float(t), int(rank), int(code)) for t, rank, code in record["deaths"]]
            killed = {int(rank): int(number) for rank, number in record["killed"].items()}
            paused, started = set(map(int, record["paused"])), set(map(int, record["started"]))
            halted = set(map(int, record.get("halted", ())))
            for number in [*killed.values(), *(-code for _, _, code in deaths if code < 0)]:
                signal.Signals(number)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
            return cls()
        return cls(deaths, killed, paused, started, halted)


def is_halted(pid: int | None) -> bool:
    """Whether a process is stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def exit_codes(lines: Sequence[Line], observed: Observed, ranks: int, ok: bool) -> dict[int, int]:
    """{rank: exit code} from what was seen, torchrun's table filling the gaps."""
    codes = dict(_table(lines))
    codes.update({rank: code for _, rank, code in observed.deaths})
    if ok:
        codes = {rank: codes.get(rank, 0) for rank in range(ranks)}
    return dict(sorted(codes.items()))


def first_rank(
    lines: Sequence[Line], observed: Observed, codes: Mapping[int, int], among: Iterable[int] = ()
) -> int | None:
    """The rank that failed first: of those that failed, or of these; None if there is none."""
    failed = [rank for rank, code in codes.items() if code not in (0, -signal.SIGTERM)]
    candidates = list(among) or failed
    died = {rank: number for number, (_, rank, _) in enumerate(observed.deaths)}
    return min(
        candidates,
        key=lambda rank: (
            rank not in observed.killed,
            followed(lines, rank),
            _first_traceback_s(lines, rank),
            died.get(rank, len(died)),
        ),
        default=None,
    )


def followed(lines: Sequence[Line], rank: int) -> bool:
    """Whether a rank's last words are about others: a broken connection, or waiting in vain."""
    return is_about_others(last_words(lines, rank))


def is_about_others(text: str) -> bool:
    """Whether an error tells of a broken connection, or of waiting in vain."""
    return bool(_FOLLOWED.search(text))


def consequences(
    lines: Sequence[Line], codes: Mapping[int, int], first: int | None
) -> dict[int, str]:
    """What the other ranks said when they ended: {rank: text}."""
    cause = "" if first is None else exception_of(lines, first)
    return {
        rank: _consequence(lines, rank, codes[rank], cause)
        for rank in sorted(codes)
        if rank != first and codes[rank] != 0
    }


def places(lines: Sequence[Line], observed: Observed, ranks: int, script: Path) -> dict[int, str]:
    """Where each rank was when time ran out: {rank: a phrase}."""
    where = {rank: _where(lines, rank, script) for rank in range(ranks)}
    for rank in where.keys() - observed.started:
        where[rank] = "not started yet: torch was still being imported"
    for _, rank, code in observed.deaths:
        if not _stacks([line.text for line in stderr_of(lines, rank)]):
            where[rank] = f"gone: {exception_of(lines, rank) or exit_text(code)}"
    return where


def stack_of(lines: Sequence[Line], rank: int) -> list[tuple[str, int, str]]:
    """The stack that faulthandler printed for a rank, outermost first: (file, line, function)."""
    stacks = _stacks([line.text for line in stderr_of(lines, rank)])
    frames = stacks[0] if stacks else []
    return [(f["file"], int(f["line"]), f["function"]) for f in reversed(frames)]


def deaths_told(lines: Sequence[Line], started: float) -> list[dict[str, float]]:
    """The first failure of each start, as torchrun tells it; `started` is the time of day of t_s 0.

    For a plain launch, which sees no rank die. torchrun calls the rank with the earliest time stamp
    the first, and they count whole seconds (elastic/multiprocessing/errors).
    """
    told = [(line.t_s, _TOLD.search(line.text)) for line in lines if line.rank is None]
    return [
        {"t": started + t_s, "rank": int(m[2]), "attempt": attempt, "exit_code": int(m[1])}
        for attempt, (t_s, m) in enumerate((t_s, m) for t_s, m in told if m)
    ]


def _table(lines: Sequence[Line]) -> list[tuple[int, int]]:
    text = "\n".join(line.text for line in lines if line.rank is None)
    return [(int(rank), int(code)) for rank, code in _TABLE_ROW.findall(text)]


class Lines(list[Line]):
    """A run's lines, sorted once by rank: a job of many ranks may have printed millions."""

    @cached_property
    def stderr(self) -> dict[int, list[Line]]:
        """{rank: what it wrote to stderr}, without torch's prefix."""
        found: dict[int, list[Line]] = {}
        for line in self:
            if line.rank is not None and line.stream == "stderr":
                text = _PREFIX.sub("", line.text, count=1)
                found.setdefault(line.rank, []).append(replace(line, text=text))
        return found


def stderr_of(lines: Sequence[Line], rank: int) -> list[Line]:
    """What a rank wrote to stderr in its last start, without torch's prefix."""
    mine = (lines if isinstance(lines, Lines) else Lines(lines)).stderr.get(rank, [])
    last = max((line.attempt for line in mine), default=0)
    return [line for line in mine if line.attempt == last]


def _first_traceback_s(lines: Sequence[Line], rank: int) -> float:
    times = [line.t_s for line in stderr_of(lines, rank) if line.text.startswith("Traceback (most")]
    return times[0] if times else float("inf")


def traceback_of(lines: Sequence[Line], rank: int) -> str:
    """A rank's first traceback, or the end of what it wrote to stderr."""
    texts = [line.text for line in stderr_of(lines, rank)]
    starts = [i for i, text in enumerate(texts) if text.startswith("Traceback (most")]
    texts = texts[starts[0] :] if starts else texts[-20:]
    if len(texts) > 60:
        texts = [*texts[:5], f"… {len(texts) - 55} lines …", *texts[-50:]]
    return "\n".join(texts)


def exception_of(lines: Sequence[Line], rank: int) -> str:
    """The exception itself: the last line of the rank's traceback that is not indented.

    If it is about others and came while the rank handled one of its own, then that one.
    """
    texts = [line.text for line in stderr_of(lines, rank)]
    last = next((text for text in reversed(texts) if _EXCEPTION.match(text)), "")
    if not last:
        last = next((found[1] for text in texts if (found := _GROUP.match(text))), "")
    if _FOLLOWED.search(last) and _HANDLED in texts:
        before = reversed(texts[: len(texts) - texts[::-1].index(_HANDLED)])
        own = (text for text in before if _EXCEPTION.match(text) and not _FOLLOWED.search(text))
        return next(own, last)
    return last


def printed_exception(lines: Sequence[Line], rank: int) -> tuple[str, str]:
    """(the last exception of which a rank printed a traceback, not about others; whose thread)."""
    texts = ["", *(line.text for line in stderr_of(lines, rank))]
    for i in range(len(texts) - 1, 0, -1):
        if texts[i].startswith("Traceback (most recent call"):
            said = next((text for text in texts[i + 1 :] if text and not text[0].isspace()), "")
            if said and not _FOLLOWED.search(said):
                thread = re.match(r"Exception in thread ([^ :]+)", texts[i - 1])
                return said, thread[1] if thread else ""
    return "", ""


def last_words(lines: Sequence[Line], rank: int) -> str:
    """A rank's exception, or else its last line on stderr."""
    texts = [line.text for line in stderr_of(lines, rank) if line.text.strip()]
    return exception_of(lines, rank) or (texts or [""])[-1]


def _consequence(lines: Sequence[Line], rank: int, code: int, first: str) -> str:
    said = exception_of(lines, rank)
    if said and said == first:
        return "the same error"
    if not said and code == -signal.SIGTERM:
        return "stopped by torchrun, because another rank had failed"
    return said or exit_text(code)


def agent_said(texts: Sequence[str]) -> str:
    """The last error among torchrun's own lines."""
    errors = [text for text in texts if re.match(r"[\w.]*(Error|Exception)\b|.*error: ", text)]
    return "torchrun itself: " + (errors[-1] if errors else "it ended without naming a rank")


def _stacks(texts: Sequence[str]) -> list[list[re.Match[str]]]:
    """Each thread's frames, the thread that met the signal first, as faulthandler prints them."""
    stacks: list[list[re.Match[str]]] = []
    for text in texts:
        if _THREAD.match(text):
            stacks.append([])
        elif stacks and (frame := _FRAME.match(text)):
            stacks[-1].append(frame)
    current = [i for i, text in enumerate(filter(_THREAD.match, texts)) if text[0] == "C"]
    return [stacks[i] for i in current] + [s for i, s in enumerate(stacks) if i not in current]


def _where(lines: Sequence[Line], rank: int, script: Path) -> str:
    """From the stack that faulthandler printed (most recent call first), one phrase."""
    stacks = _stacks([line.text for line in stderr_of(lines, rank)])
    # The signal may have met any thread: Gloo's, a DataLoader's. Ask the one that runs the script.
    running = (stack for stack in stacks if any(Path(f["file"]) == script for f in stack))
    frames = next(running, stacks[0] if stacks else [])
    if not frames:
        return "somewhere that left no stack (it ended before, or did not answer)"
    inner = frames[0]
    own = next((frame for frame in frames if Path(frame["file"]) == script), None)
    if own is None:
        return f"in {inner['function']} ({Path(inner['file']).name}, line {inner['line']})"
    at = f"{script.name}, line {own['line']}, in {own['function']}"
    return f"at {at}" if own is inner else f"in {inner['function']}, called from {at}"


def is_exception(text: str) -> bool:
    """Whether a line names an exception, as the last line of a traceback does."""
    return bool(_EXCEPTION.match(text))


def table_of(texts: Sequence[str]) -> str:
    """torchrun's own table of failures, or "" if it printed none."""
    marks = [i for i, text in enumerate(texts) if text.startswith("=" * 20)]
    return "\n".join(texts[marks[0] : marks[-1] + 1]) if len(marks) > 1 else ""
