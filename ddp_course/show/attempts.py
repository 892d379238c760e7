"""attempts(run): a job that torchrun started several times, a row for each start."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_course.errors import NoEvidence
from ddp_course.run.failure import exit_text
from ddp_course.run.run import check_run
from ddp_course.show.document import Document, Shown, Table, Title, counted

if TYPE_CHECKING:
    from ddp_course.run.run import Run

_HEAD = ("start", "ranks", "steps", "ended by", "next step after")


@dataclass(frozen=True)
class Attempt:
    """One start of all ranks. Times are seconds."""

    number: int  # TORCHELASTIC_RESTART_COUNT: 0 for the first
    ranks: int  # how many reported anything
    first_step: int | None  # the first and the last step that rank 0 logged
    last_step: int | None
    failed: int | None = None  # the rank that failed first
    exit_code: int | None = None  # of that rank; negative for a signal
    recovery_s: float | None = None  # from that death to the first step of the next start

    @property
    def _cells(self) -> tuple[str, ...]:
        steps = "none" if self.first_step is None else f"{self.first_step} to {self.last_step}"
        ended = "its end" if self.failed is None else f"rank {self.failed}, "
        if self.failed is not None:
            ended += exit_text(self.exit_code)
        back = "–" if self.recovery_s is None else f"{self.recovery_s:.2f} s"
        return str(self.number), str(self.ranks), steps, ended, back


@dataclass(frozen=True, repr=False)
class Attempts(Shown):
    """Every start of a run; `restarts`, `failed_first` and `recovery_s` are about the first one."""

    rows: tuple[Attempt, ...]
    repeated: int  # steps that rank 0 did more than once

    @property
    def restarts(self) -> int:
        return len(self.rows) - 1

    @property
    def failed_first(self) -> int | None:
        return self.rows[0].failed

    @property
    def recovery_s(self) -> float | None:
        return self.rows[0].recovery_s

    @property
    def message(self) -> str:
        """The one thing that the view says."""
        starts, steps = counted(len(self.rows), "start"), counted(self.repeated, "step")
        return f"{starts}, {steps} done twice"

    def document(self) -> Document:
        return Document(Title(self.message), Table(_HEAD, [row._cells for row in self.rows]))


def attempts(run: Run) -> Attempts:
    """The starts of a run, from what its ranks reported. Waits for its end.

    Raises NoEvidence if no rank reported anything.
    """
    check_run(run)
    numbers = sorted({event["attempt"] for event in run.events})
    if not numbers:
        raise NoEvidence(
            f"No rank of {run.job} reported anything.",
            cause="the run ended before its first event",
            action="see run.failure",
        )
    steps = [m["step"] for m in run.metrics if m["rank"] == 0 and _counted(m)]
    rows = tuple(_attempt(run, number) for number in numbers)
    return Attempts(rows, len(steps) - len(set(steps)))


def _attempt(run: Run, number: int) -> Attempt:
    mine = [event for event in run.events if event["attempt"] == number]
    steps = [event["step"] for event in mine if event["rank"] == 0 and _counted(event)]
    death = _first_death(run, number)
    later = [e["t"] for e in run.events if e["attempt"] == number + 1 and _counted(e)]
    return Attempt(
        number,
        len({event["rank"] for event in mine}),
        steps[0] if steps else None,
        steps[-1] if steps else None,
        death["rank"] if death else None,
        death["exit_code"] if death else None,
        min(later) - death["t"] if death and later else None,
    )


def _counted(event: dict[str, Any]) -> bool:
    return isinstance(event.get("step"), int) and abs(event["step"]) < 1 << 62


def _first_death(run: Run, number: int) -> dict[str, Any] | None:
    """The first that ended badly; not one that torchrun stopped because of it."""
    deaths: list[dict[str, Any]] = run.result.get("deaths", [])
    bad = [
        one
        for one in deaths
        if one["attempt"] == number and one["exit_code"] not in (0, -signal.SIGTERM)
    ]
    return bad[0] if bad else None
