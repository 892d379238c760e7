"""What a check found, as data that draws itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ddp_course.show.style import page, table

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


@dataclass(frozen=True)
class Verdict:
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

    def __str__(self) -> str:
        parts = [self.summary]
        shown = self._first_open()
        for one in self.results:
            parts.append(f"  {SIGNS[one.status]} {one.title} ({one.points}/{one.max_points})")
            if one is shown:
                parts += [f"      {line}".rstrip() for line in _details(one)]
        if self.command:
            parts += ["", f"your file: {self.file}", f"$ {self.command}"]
        return "\n".join([*parts, self.note])

    __repr__ = __str__

    def _first_open(self) -> Result | None:
        return next((one for one in self.results if one.status != "pass"), None)

    def _repr_html_(self) -> str:
        shown = self._first_open()
        rows = "".join(_html_result(one, opened=one is shown) for one in self.results)
        command = ""
        if self.command:
            command = (
                f"<div class='ddpc-quiet'>your file: <code>{escape(self.file)}</code>, in a shell:"
                f"</div><pre style='white-space:pre-wrap'>{escape(self.command)}</pre>"
            )
        return page(
            f"<div class='ddpc ddp-verdict'><div class='ddpc-title'>{escape(self.summary)}</div>"
            f"{rows}{command}<div class='ddpc-quiet'>{escape(self.note)}</div></div>"
        )


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal: words begin where their column begins, numbers end where it ends."""
    columns = list(zip(head, *rows, strict=True))
    cells = [
        [cell.ljust(max(map(len, column))) if words else cell.rjust(max(map(len, column)))
         for cell in column]
        for words, column in zip(_wordy(columns), columns, strict=True)
    ]  # fmt: skip
    return "\n".join("  ".join(line).rstrip() for line in zip(*cells, strict=True))


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table for a notebook."""
    wordy = _wordy(list(zip(head, *rows, strict=True)))
    lines = [
        [
            f"<div style='text-align:left'>{escape(cell)}</div>" if words else escape(cell)
            for words, cell in zip(wordy, line, strict=True)
        ]
        for line in (head, *rows)
    ]
    return table(lines[0], lines[1:])


def _wordy(columns: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns, heads included, hold words."""
    return [all(any(map(str.isalpha, cell)) for cell in c[1:] if cell) for c in columns]


def _details(one: Result) -> list[str]:
    lines = one.message.splitlines()
    if one.rows:
        lines += aligned(one.head, one.rows).splitlines()
    lines += one.traceback.splitlines()
    if one.mistake:
        lines.append(f"It looks like: {one.mistake}.")
    if one.hint:
        lines.append(f"Hint: {one.hint}")
    if one.why:
        lines.append(f"Why it matters: {one.why}.")
    return lines


def _html_result(one: Result, *, opened: bool) -> str:
    head = f"{SIGNS[one.status]} {escape(one.title)} ({one.points}/{one.max_points})"
    parts: list[str] = []
    if one.message:
        parts.append(f"<div>{escape(one.message)}</div>")
    if one.rows:
        parts.append(html_table(one.head, one.rows))
    if one.traceback:
        parts.append(f"<pre style='white-space:pre-wrap'>{escape(one.traceback)}</pre>")
    if one.mistake:
        parts.append(f"<div>It looks like: <b>{escape(one.mistake)}</b>.</div>")
    if one.hint:
        parts.append(f"<div><b>Hint:</b> {escape(one.hint)}</div>")
    if one.why:
        parts.append(f"<div class='ddpc-quiet'>Why it matters: {escape(one.why)}.</div>")
    if not parts:
        return f"<div>{head}</div>"
    openly = " open" if opened else ""
    return f"<details{openly}><summary>{head}</summary>{''.join(parts)}</details>"
