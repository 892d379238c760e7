"""What a diagnosis is made of, and what it says."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ddp_course.observe import ledger
from ddp_course.observe import output as failures
from ddp_course.observe.ledger import Ledger, Row
from ddp_course.observe.output import Lines, Observed
from ddp_course.run.run import advice_html

_TABLE = "torchrun's own account"
HEALTHY = frozenset({"healthy", "running"})


@dataclass(frozen=True)
class Diagnosis:
    """What happened in a run: `str()` says it all, and a notebook shows the same."""

    kind: str  # "healthy", "never-arrived", "uneven-steps", …
    sentence: str
    remedy: str = ""
    lesson: str = ""  # number and section, "03 What if a rank runs out of data?"
    rank: int | None = None  # the first at fault; None: no single one
    collective: str = ""  # "all_reduce #4"
    evidence: tuple[str, ...] = ()
    consequences: dict[int, str] = field(default_factory=dict)  # rank -> what it said afterwards
    table: str = ""  # torchrun's own account

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.kind in HEALTHY

    def __str__(self) -> str:
        parts = [f"DIAGNOSIS ({self.kind}): {self.sentence}"]
        parts += [f"WHAT TO DO: {self.remedy}"] if self.remedy else []
        parts += [f"LESSON: {self.lesson}"] if self.lesson else []
        for title, lines in self._folded():
            told = lines if title != _TABLE else _rows(lines)
            parts += ["", f"{title}:", *(f"  {line}" for line in told)]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = "#117733" if self.healthy else "#aa3344"
        parts = [
            f"<div style='font-size:120%'><b style='color:{colour}'>Diagnosis</b> "
            f"({html.escape(self.kind)}): <b>{html.escape(self.sentence)}</b></div>",
            advice_html(self.remedy, self.lesson),
        ]
        for title, lines in self._folded():
            told = html.escape("\n".join(lines))
            parts.append(
                f"<details><summary>{html.escape(title)}</summary>"
                f"<pre style='white-space:pre-wrap'>{told}</pre></details>"
            )
        return f"<div class='ddp-diagnosis'>{''.join(parts)}</div>"

    def _folded(self) -> Iterator[tuple[str, list[str]]]:
        if self.evidence:
            yield "evidence", list(self.evidence)
        if self.consequences:
            followed = [f"rank {rank}: {text}" for rank, text in self.consequences.items()]
            yield "what followed", followed
        if self.table:
            yield _TABLE, self.table.splitlines()


def _rows(table: list[str]) -> list[str]:
    """The table's ranks and exit codes, a line for each; the whole of it is in torchrun.log."""
    told = [re.match(r"\s*(rank|exitcode)\s*: (.*)", line) for line in table]
    words = [f"{found[1]} {found[2].strip()}" for found in told if found]
    pairs = [", ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    return [*pairs, "the last one is the first that it saw fail"] if pairs else table[:3]


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

    @cached_property
    def rows(self) -> list[Row]:
        """The ranks' collectives, aligned."""
        return ledger.align(self.ledgers)

    def stderr(self, rank: int) -> str:
        """A rank's own words, of its last start."""
        return "\n".join(line.text for line in failures.stderr_of(self.lines, rank))

    @cached_property
    def agent(self) -> list[str]:
        """torchrun's own lines."""
        return [line.text for line in self.lines if line.rank is None]
