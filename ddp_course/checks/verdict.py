"""What a check found, as data that draws itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddp_course.show.document import (
    Block,
    Document,
    Fold,
    Label,
    Line,
    Listing,
    Note,
    Rank,
    Shown,
    Table,
    Title,
    Words,
)

SIGNS = {
    "pass": "✓",
    "fail": "✗",
    "error": "✗",
    "timeout": "✗",
    "blocked": "–",
    "ungradable": "○",
    "infra": "!",
}
WORDS = {
    "pass": "passed",
    "fail": "not passed",
    "error": "not passed: an error",
    "timeout": "not passed: it hangs",
    "blocked": "not reached",
    "ungradable": "not yet",
    "infra": "could not be checked (not your fault)",
}
NOTE = (
    "Checked in learning mode: your file ran without a sandbox, so this is for you, not for marks."
)


@dataclass(frozen=True)
class Result:
    """One check's result. `points` are 0 unless the status is "pass"."""

    id: str
    title: str
    status: str
    max_points: int
    message: str = ""
    why: str = ""
    mistake: str = ""  # the known mistake that was recognised
    hint: str = ""
    head: tuple[str, ...] = ()  # the table: what each rank did
    rows: tuple[tuple[str, ...], ...] = ()
    traceback: str = ""

    @property
    def points(self) -> int:
        return self.max_points if self.status == "pass" else 0


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """The result of `check(…)`.

    status   "pass", or that of the first check that did not pass: "fail", "error" (it raised),
             "timeout" (a rank never came back), "ungradable" (nothing to judge yet), "infra" (our
             fault, never yours)
    """

    exercise: str
    title: str
    results: tuple[Result, ...]
    command: str = ""  # runs the learner's file in a shell
    file: str = ""
    folder: str = ""  # of the run, if there was one
    note: str = field(default=NOTE)

    @property
    def status(self) -> str:
        return next((one.status for one in self.results if one.status != "pass"), "pass")

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def points(self) -> int:
        return sum(one.points for one in self.results)

    @property
    def max_points(self) -> int:
        return sum(one.max_points for one in self.results)

    @property
    def summary(self) -> str:
        """One line: what and how many points."""
        sign, word = SIGNS[self.status], WORDS[self.status]
        score = f"{self.points} of {self.max_points} points"
        return f"{sign} {self.exercise} {self.title}: {word}, {score}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the run's folder and for `check --json`."""
        return {
            "exercise": self.exercise,
            "title": self.title,
            "status": self.status,
            "points": self.points,
            "max_points": self.max_points,
            "file": self.file,
            "command": self.command,
            "run": self.folder,
            "note": self.note,
            "results": [
                {
                    "id": one.id,
                    "title": one.title,
                    "status": one.status,
                    "points": one.points,
                    "max_points": one.max_points,
                    "message": one.message,
                    "mistake": one.mistake,
                    "hint": one.hint,
                    "why": one.why,
                    "table": {"head": list(one.head), "rows": [list(row) for row in one.rows]},
                    "traceback": one.traceback,
                }
                for one in self.results
            ],
        }

    def document(self) -> Document:
        first = next((one for one in self.results if one.status != "pass"), None)
        command: list[Block] = []
        if self.command:
            command = ["", Note(f"your file: {self.file}"), Listing(f"$ {self.command}")]
        results = (_result(one, opened=one is first) for one in self.results)
        notes = *results, *command, Note(self.note)
        return Document(Title(self.summary), *notes, name="ddp-verdict")


def _ranked(head: Sequence[str], row: Sequence[str]) -> Sequence[Words]:
    """A row whose first cell is the number of a rank names the rank."""
    if head[0] != "rank" or not row[0].isdecimal():
        return row
    return [Rank(int(row[0])), *row[1:]]


def _result(one: Result, *, opened: bool) -> Block:
    """One check in a line, with its details folded; plain text has those of the first alone."""
    head = f"{SIGNS[one.status]} {one.title} ({one.points}/{one.max_points})"
    details: list[Block] = [one.message] if one.message else []
    details += [Table(one.head, [_ranked(one.head, row) for row in one.rows])] if one.rows else []
    details += [Listing(one.traceback)] if one.traceback else []
    details += [f"It looks like: {one.mistake}."] if one.mistake else []
    details += [Line(Label("Hint"), one.hint)] if one.hint else []
    details += [Note(f"Why it matters: {one.why}.")] if one.why else []
    if not details:
        return head
    return Fold(head, *details, opened=opened, plain=None if opened else ())
