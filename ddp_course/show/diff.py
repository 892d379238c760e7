"""show_job(name): a job's script. show_diff(a, b): what one script changes in another."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from ddp_course.launcher.catalogue import find_job
from ddp_course.show.document import (
    Document,
    Figure,
    Fold,
    Listing,
    Shown,
    Title,
    coloured,
    counted,
)

_CONTEXT = 2  # unchanged lines around a change


def show_job(job: str | Path) -> JobText:
    """The script of a job, coloured. Raises BadArgument, naming the jobs that there are."""
    path = find_job(job)
    return JobText(path.stem, path.read_text(encoding="utf-8", errors="replace"))


def show_diff(job_a: str | Path, job_b: str | Path) -> Diff:
    """What job_b changes in job_a, side by side. Raises BadArgument for a job that is not there."""
    a, b = show_job(job_a), show_job(job_b)
    return Diff(a.name, b.name, tuple(a.text.splitlines()), tuple(b.text.splitlines()))


@dataclass(frozen=True, repr=False)
class JobText(Shown):
    """A script that shows itself, coloured."""

    name: str
    text: str

    def document(self) -> Document:
        return Document(Title(f"{self.name}.py"), Listing(self.text, "python"))


@dataclass(frozen=True)
class Row:
    """One row of a side-by-side diff: a line of a, a line of b, or both; numbers count from 1."""

    a: int | None
    b: int | None
    same: bool


@dataclass(frozen=True, repr=False)
class Diff(Shown):
    """Two scripts compared; `added` and `removed` count lines of code, not those of docstrings."""

    name_a: str
    name_b: str
    lines_a: tuple[str, ...]
    lines_b: tuple[str, ...]

    @cached_property
    def rows(self) -> list[Row]:
        """The code of both scripts, from the end of their docstrings on."""
        return self._rows(_code_begins(self.lines_a), len(self.lines_a),
                          _code_begins(self.lines_b), len(self.lines_b))  # fmt: skip

    @property
    def added(self) -> int:
        return sum(row.b is not None and self._says(row) for row in self.rows)

    @property
    def removed(self) -> int:
        return sum(row.a is not None and self._says(row) for row in self.rows)

    @property
    def message(self) -> str:
        """The one thing that the view says."""
        names = f"{self.name_a} → {self.name_b}"
        return f"{names}: {counted(self.added, 'line')} added, {self.removed} removed"

    def document(self) -> Document:
        shown = self._near_changes()
        folded = self._rows(0, _code_begins(self.lines_a), 0, _code_begins(self.lines_b))
        return Document(
            Title(self.message),
            Figure(self._table(shown), "\n".join(self._signed(shown))),
            Fold("both scripts, with their docstrings",
                 Figure(self._table([*folded, *self.rows]), ""), plain=()),
        )  # fmt: skip

    def _rows(self, a: int, a_end: int, b: int, b_end: int) -> list[Row]:
        """Lines a … a_end of the first script beside lines b … b_end of the second."""
        rows: list[Row] = []
        parts = self.lines_a[a:a_end], self.lines_b[b:b_end]
        matcher = difflib.SequenceMatcher(None, *parts, autojunk=False)
        for kind, i, i_end, j, j_end in matcher.get_opcodes():
            for k in range(max(i_end - i, j_end - j)):
                left = a + i + k + 1 if i + k < i_end else None
                right = b + j + k + 1 if j + k < j_end else None
                rows.append(Row(left, right, kind == "equal"))
        return rows

    def _says(self, row: Row) -> bool:
        """Whether a row is a change, and of more than empty lines."""
        lines = [self.lines_a[row.a - 1]] if row.a else []
        lines += [self.lines_b[row.b - 1]] if row.b else []
        return not row.same and any(map(str.strip, lines))

    def _near_changes(self) -> list[Row | None]:
        """The rows at most _CONTEXT away from a change, with None for each gap."""
        changed = {i for i, row in enumerate(self.rows) if not row.same}
        near = {i + k for i in changed for k in range(-_CONTEXT, _CONTEXT + 1)}
        shown = [row if i in near else None for i, row in enumerate(self.rows)]
        return [row for i, row in enumerate(shown) if row or i == 0 or shown[i - 1]]

    def _signed(self, rows: Sequence[Row | None]) -> list[str]:
        """As `diff` writes it: what is gone before what has come."""
        signed: list[str] = []
        new: list[str] = []
        for row in rows:
            if row is None or row.same:
                signed, new = signed + new, []
                signed.append("⋯" if row is None else f" {self.lines_a[(row.a or 1) - 1]}")
                continue
            signed += [f"-{self.lines_a[row.a - 1]}"] if row.a else []
            new += [f"+{self.lines_b[row.b - 1]}"] if row.b else []
        return signed + new

    def _table(self, rows: Sequence[Row | None]) -> str:
        left, right = (coloured("\n".join(lines)) for lines in (self.lines_a, self.lines_b))
        body = "".join(
            f"<tr>{_cell(row.a, left, '−' * (not row.same), 'ddpc-gone')}"
            f"{_cell(row.b, right, '+' * (not row.same), 'ddpc-new')}</tr>"
            if row
            else "<tr class='ddpc-gap'><td colspan='4'>⋯</td></tr>"
            for row in rows
        )
        head = "".join(f"<th colspan='2'>{escape(n)}.py</th>" for n in (self.name_a, self.name_b))
        columns = "<col class='ddpc-n'><col>" * 2
        table = f"<colgroup>{columns}</colgroup><tr>{head}</tr>{body}"
        return f"<table class='ddpc-diff'>{table}</table>"


def _code_begins(lines: Sequence[str]) -> int:
    """How many lines the docstring takes, with the empty ones below it; 0 without one."""
    try:
        first = ast.parse("\n".join(lines)).body[:1]
    except (SyntaxError, ValueError):
        return 0
    text = first[0].value if first and isinstance(first[0], ast.Expr) else None
    if not (isinstance(text, ast.Constant) and isinstance(text.value, str)):
        return 0
    begins = text.end_lineno or 0
    while begins < len(lines) and not lines[begins].strip():
        begins += 1
    return begins


def _cell(number: int | None, lines: list[str], sign: str, kind: str) -> str:
    if number is None:
        return "<td class='ddpc-none'></td><td class='ddpc-none'></td>"
    look = f" class='{kind}'" if sign else ""
    code = lines[number - 1].lstrip(" ")
    # A page exported by nbconvert would lose blanks in front of a coloured word.
    indent = "&nbsp;" * (len(lines[number - 1]) - len(code))
    return (
        f"<td class='ddpc-n'>{sign or number}</td>"
        f"<td{look}><code>{indent + code or '&nbsp;'}</code></td>"
    )
