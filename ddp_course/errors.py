"""What can go wrong, in words that end with the next action.

CourseError
├── BadArgument      a knob, a rank count or a job that cannot be launched: nothing was started
├── NoSuchRun        a folder that is not (or no longer) a run
├── NoEvidence       a run that lacks what a view or a check needs
└── CannotRun        this machine or installation cannot run the course
"""

from __future__ import annotations


class CourseError(Exception):
    """Base of all errors that this package raises on purpose."""

    def __init__(self, what: str, *, cause: str = "", action: str = "") -> None:
        self.what, self.cause, self.action = what, cause, action
        parts = [what]
        if cause:
            parts.append(f"Likely cause: {cause}")
        if action:
            parts.append(f"What to do: {action}")
        super().__init__("\n".join(parts))

    def _render_traceback_(self) -> list[str]:
        """In a notebook: the message alone, for these errors are about the call, not the course."""
        return [f"{type(self).__name__}: {self}"]


class BadArgument(CourseError, ValueError):
    """A bad argument to launch() or a view; raised before anything starts."""


class NoSuchRun(CourseError, FileNotFoundError):
    """The folder given is not a run, or its record cannot be read."""


class NoEvidence(CourseError, LookupError):
    """The run did not record what was asked of it (a metric, a trace)."""


class CannotRun(CourseError, RuntimeError):
    """This machine or this installation lacks something that the course needs."""


def shown(value: object) -> str:
    """repr, short enough for a message."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "this number"
    return text if len(text) <= 100 else f"{text[:100]}…"
