"""What a shell sees of a run while it runs: its lines, a hang while it hangs, how it ended."""

from __future__ import annotations

import sys
import time

from ddp_course.launcher.live import POLL_S
from ddp_course.observe import ledger
from ddp_course.run.run import Run

_QUIET_S = 8.0  # without a line or an event, until the ranks are asked what they do
_AGAIN_S = 2.0  # between two looks: a hang is what has not moved meanwhile


def print_while_running(run: Run) -> None:
    """Print a run's lines as they come, and how it ended; an interrupt stops it."""
    say(f"$ {run.command}")
    shown, hang = 0, _Hang(run)
    try:
        while True:
            done = run.ends_within(POLL_S)
            fresh = run.reader.lines[shown:]  # one look: the launcher's thread goes on adding
            for line in fresh:
                if line.rank is not None and line.t_s <= run.dump_s:
                    say(f"[rank {line.rank}] {line.words}")
            shown += len(fresh)
            if done:
                break
            if told := hang.look():
                say(told)
    except BaseException:
        try:
            if run.state == "running" and not run.done:
                say(f"Stopped after {run.elapsed_s:.0f} s. So far: {run.diagnosis}")
        finally:
            run.stop()
            run.ends_within(5)
        raise
    say(run.summary())
    if run.failure is not None:
        say(str(run.failure))


class _Hang:
    """Notices that a run stands still, while it does."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen = 0
        self._next_s = time.monotonic() + _QUIET_S
        self._calls: dict[int, int] = {}
        self._suspect = self._told = ""

    def look(self) -> str:
        """One line when the ranks stand still, again only when it has changed; "" otherwise."""
        run, now = self._run, time.monotonic()
        seen = len(run.reader.lines) + len(run.reader.events)
        if seen != self._seen or run.state != "running":
            self._seen, self._next_s, self._suspect = seen, now + _QUIET_S, ""
        if now < self._next_s or run.dump_s < run.elapsed_s:
            return ""
        found = run.diagnosis
        self._next_s = time.monotonic() + _AGAIN_S
        calls, before = ledger.calls(run.folder), self._calls
        named = f"{found.kind} {found.rank} {found.collective}"
        still = calls == before and named == self._suspect
        self._calls, self._suspect = calls, named
        if found.healthy or run.done or not still or named == self._told:
            return ""
        self._told = named
        return f"[{run.elapsed_s:.0f} s, still running] {found.sentence}"


def say(text: str) -> None:
    """Print, also where the terminal's encoding lacks a character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
