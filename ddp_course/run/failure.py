"""What went wrong in a run, and how a process ended, in words."""

from __future__ import annotations

import contextlib
import importlib
import signal
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Failure:
    """What went wrong first, and what merely followed."""

    rank: int | None  # None: no single rank, or torchrun itself
    what: str  # one sentence
    exit_code: int | None = None
    traceback: str = ""
    where: dict[int, str] = field(default_factory=dict)  # rank -> where it was when time ran out
    consequences: dict[int, str] = field(default_factory=dict)  # rank -> what it said afterwards
    kind: str = ""  # as ddp_course.diagnosis names it: "never-arrived", …
    remedy: str = ""
    lesson: str = ""
    table: str = ""  # torchrun's own account

    def __str__(self) -> str:
        return failure_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        package: Any = importlib.import_module("ddp_course")
        html: str = package.hook("failure_html")(self)
        return html


def failure_text(failure: Failure) -> str:
    """A failure as text: what followed first and short, the cause last and whole."""
    parts = [f"  then rank {rank}: {text}" for rank, text in failure.consequences.items()]
    if failure.traceback:
        parts += ["", failure.traceback.rstrip()]
    parts += [f"  rank {rank} was {text}" for rank, text in failure.where.items()]
    parts += ["", f"{heading(failure).upper()}: {failure.what}"]
    parts += [f"WHAT TO DO: {failure.remedy}"] if failure.remedy else []
    parts += [f"LESSON: {failure.lesson}"] if failure.lesson else []
    return "\n".join(parts).lstrip("\n")


def heading(failure: Failure) -> str:
    """The words before the sentence."""
    return "What happened" if failure.rank is None else "First failure"


def exit_text(code: int | None) -> str:
    """An exit code in words: "exit code 3", "killed by SIGKILL (-9)"."""
    if code is None:
        return "exit code not seen"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name} ({code})"
    return f"exit code {code}"


def final_state(exit_code: int | None, *, finished: bool) -> str:
    """What a rank is called that has ended: done, stopped, killed or failed."""
    if exit_code == 0 or (exit_code is None and finished):
        return "done"
    if exit_code in (None, -signal.SIGTERM):
        return "stopped"
    return "killed" if exit_code == -signal.SIGKILL else "failed"


def counted(number: int, what: str = "rank") -> str:
    """ "1 rank", "2 ranks"."""
    return f"{number} {what}" + "s" * (number != 1)
