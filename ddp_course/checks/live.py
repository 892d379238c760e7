"""What the ranks of a check do, while they do it: a small table in a notebook, lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ddp_course.checks.agreed import BACK
from ddp_course.checks.supervisor import Observation
from ddp_course.launcher.session import session
from ddp_course.show.document import Block, Document, Line, Rank, Title

Tell = Callable[[list[Observation]], None]

WORDS = {
    "absent": "○ starting",
    "here": "○ starting",
    "importing": "○ importing your file",
    "loading": "○ ready",
    "computing": "● computing",
    "returned": "✓ returned",
    "raised": "✗ raised an error",
    "malformed": "✗ answered what cannot be judged",
    "gone": "✗ left without an answer",
}
_WAITS = 3  # answers without progress, until a rank is said to wait
_PERIOD_S, _SELDOM_S = 0.1, 2.0


@contextlib.contextmanager
def shown(exercise: str) -> Iterator[Tell | None]:
    """Show a check's ranks where there is somebody to look: `tell` takes what is known of them."""
    if session.in_background:
        table = _Table(exercise)
        try:
            yield table.tell
        finally:
            table.close()
    elif session.in_kernel:  # a notebook that is run without a reader
        yield None
    else:
        lines = _Lines(exercise)
        try:
            yield lines.tell
        finally:
            lines.close()


def act(one: Observation) -> str:
    """What a rank does, as sign and words."""
    if one.state == "computing" and one.still >= _WAITS:
        line = "" if one.line == BACK else one.line
        return f"‖ waiting {line and 'in ' + line}".rstrip()
    return WORDS[one.state]


class _Table:
    """A display of the cell that is running; it goes when the verdict comes."""

    def __init__(self, exercise: str) -> None:
        self._title, self._last, self._next = Title(f"checking {exercise} …"), "", 0.0
        self._display: Any = importlib.import_module("IPython.display")
        self._handle = self._display.display(self._bundle(), raw=True, display_id=True)

    def tell(self, seen: list[Observation]) -> None:
        bundle = self._bundle(*(Line(Rank(one.rank), act(one)) for one in seen))
        if bundle["text/html"] == self._last or time.monotonic() < self._next:
            return
        self._last, self._next = bundle["text/html"], time.monotonic() + _PERIOD_S
        self._handle.update(bundle, raw=True)

    def close(self) -> None:
        empty = {"text/html": "", "text/plain": ""}
        self._handle.update(empty, raw=True)

    def _bundle(self, *rows: Block) -> dict[str, str]:
        html = Document(self._title, *rows, name="ddp-checking").html()
        return {"text/html": html, "text/plain": self._title.text()}


class _Lines:
    """On standard error, so that standard output holds verdicts only. On a terminal it is one line
    that is rewritten; in a file, a line now and then, if a check takes long."""

    def __init__(self, exercise: str) -> None:
        self._exercise, self._last = exercise, ""
        self._next = time.monotonic() + _SELDOM_S
        self._rewrites = sys.stderr is not None and sys.stderr.isatty()

    def tell(self, seen: list[Observation]) -> None:
        text = f"{self._exercise}  " + "  ".join(f"rank {one.rank} {act(one)}" for one in seen)
        now = time.monotonic()
        if text == self._last or (not self._rewrites and now < self._next):
            return
        self._last, self._next = text, now + _SELDOM_S
        self._write(f"\r\x1b[K{text[: _columns()]}" if self._rewrites else text + "\n")

    def close(self) -> None:
        if self._rewrites and self._last:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()


def _columns() -> int:
    return shutil.get_terminal_size().columns - 1
