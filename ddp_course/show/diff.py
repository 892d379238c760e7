"""show_job(name): a job's script. show_diff(a, b): what one script changes in another."""

from __future__ import annotations

import difflib
import io
import keyword
import tokenize
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ddp_course.launcher.catalogue import find_job
from ddp_course.show.style import MONO, QUIET, page

_CONTEXT = 2  # unchanged lines around a change


def show_job(job: str | Path) -> JobText:
    """The script of a job, coloured. Raises BadArgument, naming the jobs that there are."""
    path = find_job(job)
    return JobText(path.stem, path.read_text(encoding="utf-8", errors="replace"))


def show_diff(job_a: str | Path, job_b: str | Path) -> Diff:
    """What job_b changes in job_a, side by side. Raises BadArgument for a job that is not there."""
    a, b = show_job(job_a), show_job(job_b)
    return Diff(a.name, b.name, tuple(a.text.splitlines()), tuple(b.text.splitlines()))


@dataclass(frozen=True)
class JobText:
    """A script that shows itself with line colours."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "\n".join(coloured(self.text))
        return page(
            f"<style>{_CSS}</style><div class='ddpc'>"
            f"<div class='ddpc-title'>{escape(self.name)}.py</div>"
            f"<pre class='ddpc-code'>{lines}</pre></div>"
        )


@dataclass(frozen=True)
class Row:
    """One row of a side-by-side diff: a line of a, a line of b, or both; numbers count from 1."""

    sign: str  # " " unchanged, "-" only in a, "+" only in b, "~" changed
    a: int | None
    b: int | None


@dataclass(frozen=True)
class Diff:
    """Two scripts compared; `added` and `removed` count lines."""

    name_a: str
    name_b: str
    lines_a: tuple[str, ...]
    lines_b: tuple[str, ...]

    @property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        matcher = difflib.SequenceMatcher(None, self.lines_a, self.lines_b, autojunk=False)
        for kind, a, a_end, b, b_end in matcher.get_opcodes():
            for i in range(max(a_end - a, b_end - b)):
                left = a + i + 1 if a + i < a_end else None
                right = b + i + 1 if b + i < b_end else None
                sign = " " if kind == "equal" else "-+~"[_which(left, right)]
                rows.append(Row(sign, left, right))
        return rows

    @property
    def added(self) -> int:
        return sum(row.sign in "+~" for row in self.rows)

    @property
    def removed(self) -> int:
        return sum(row.sign in "-~" for row in self.rows)

    @property
    def message(self) -> str:
        """The one thing that the view says."""
        return (
            f"{self.name_a} → {self.name_b}: {self.added} of {len(self.lines_b)} lines are new, "
            f"{self.removed} of {len(self.lines_a)} are gone"
        )

    def __str__(self) -> str:
        names = f"{self.name_a}.py", f"{self.name_b}.py"
        lines = difflib.unified_diff(self.lines_a, self.lines_b, *names, n=_CONTEXT, lineterm="")
        return "\n".join([self.message, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = self.rows
        left = coloured("\n".join(self.lines_a))
        right = coloured("\n".join(self.lines_b))
        near = _near_changes(rows)
        short: list[str] = []
        for i, row in enumerate(rows):
            if near[i]:
                short.append(_html_row(row, left, right))
            elif i == 0 or near[i - 1]:
                short.append(_GAP)
        whole = "".join(_html_row(row, left, right) for row in rows)
        head = (
            f"<tr><th colspan='2'>{escape(self.name_a)}.py</th>"
            f"<th colspan='2'>{escape(self.name_b)}.py</th></tr>"
        )
        table = "<table class='ddpc-diff'><colgroup><col class='ddpc-n'><col><col class='ddpc-n'>"
        return page(
            f"<style>{_CSS}</style><div class='ddpc'>"
            f"<div class='ddpc-title'>{escape(self.message)}</div>"
            f"{table}<col></colgroup>{head}{''.join(short)}</table>"
            f"<details><summary>both scripts whole</summary>"
            f"{table}<col></colgroup>{head}{whole}</table></details></div>"
        )


def _which(left: int | None, right: int | None) -> int:
    return 0 if right is None else 1 if left is None else 2


def _near_changes(rows: list[Row]) -> list[bool]:
    """Which rows are a change or at most _CONTEXT rows away from one."""
    changed = [i for i, row in enumerate(rows) if row.sign != " "]
    near = [False] * len(rows)
    for i in changed:
        for j in range(max(i - _CONTEXT, 0), min(i + _CONTEXT + 1, len(rows))):
            near[j] = True
    return near


_GAP = "<tr class='ddpc-gap'><td colspan='4'>⋯</td></tr>"


def _html_row(row: Row, left: list[str], right: list[str]) -> str:
    a = _html_cell(row.a, left, "" if row.sign == " " else "−", "ddpc-gone")
    b = _html_cell(row.b, right, "" if row.sign == " " else "+", "ddpc-new")
    return f"<tr>{a}{b}</tr>"


def _html_cell(number: int | None, lines: list[str], sign: str, kind: str) -> str:
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


def coloured(source: str) -> list[str]:
    """The lines of a Python text as HTML, coloured by JupyterLab's own editor colours.

    A text that is not Python stays plain.
    """
    lines = source.splitlines()
    marks: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind = _kind(token)
            if kind:
                _mark(marks, lines, token, kind)
    except (tokenize.TokenError, SyntaxError):
        return [escape(line) for line in lines]
    return [_paint(line, spans) for line, spans in zip(lines, marks, strict=True)]


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
        return "string"
    if token.type == tokenize.NUMBER:
        return "number"
    return "keyword" if keyword.iskeyword(token.string) else ""


def _mark(
    marks: list[list[tuple[int, int, str]]],
    lines: list[str],
    token: tokenize.TokenInfo,
    kind: str,
) -> None:
    (first, start), (last, end) = token.start, token.end
    for row in range(first, min(last, len(lines)) + 1):
        begin = start if row == first else 0
        stop = end if row == last else len(lines[row - 1])
        if begin < stop:
            marks[row - 1].append((begin, stop, kind))


def _paint(line: str, spans: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for begin, stop, kind in spans:
        parts.append(escape(line[at:begin]))
        parts.append(f"<span class='ddpc-{kind}'>{escape(line[begin:stop])}</span>")
        at = stop
    return "".join([*parts, escape(line[at:])])


_CSS = f"""
.ddpc pre.ddpc-code {{ max-height: 1150px; overflow: auto; line-height: 1.5; padding: 8px;
  border: 1px solid var(--jp-border-color2, #e0e0e0); border-radius: 4px; }}
.ddpc-comment {{ color: {QUIET}; font-style: italic; }}
.ddpc-string {{ color: var(--jp-mirror-editor-string-color, #ba2121); }}
.ddpc-number {{ color: var(--jp-mirror-editor-number-color, #080); }}
.ddpc-keyword {{ color: var(--jp-mirror-editor-keyword-color, #008000); font-weight: 600; }}
.ddpc .ddpc-diff {{ table-layout: fixed; width: 100%; border-collapse: collapse; margin: 0 0 8px;
  border: 1px solid var(--jp-border-color2, #e0e0e0); }}
.ddpc-diff col.ddpc-n {{ width: 34px; }}
.ddpc .ddpc-diff td, .ddpc .ddpc-diff th {{ border: 0; padding: 0 6px; text-align: left;
  vertical-align: top; line-height: 18px; color: inherit; background: none; max-width: none; }}
.ddpc .ddpc-diff th {{ padding: 3px 6px; font-weight: 600; }}
.ddpc .ddpc-diff code {{ white-space: pre-wrap; overflow-wrap: anywhere; font-size: 11.5px;
  line-height: 18px; padding: 0; }}
.ddpc .ddpc-diff td.ddpc-n {{ text-align: right; padding: 0 4px; opacity: .75;
  font-family: {MONO}; font-size: 11px; user-select: none; }}
.ddpc .ddpc-diff td.ddpc-new {{ background: rgba(0, 158, 115, .17); }}
.ddpc .ddpc-diff td.ddpc-gone {{ background: rgba(213, 94, 0, .17); }}
.ddpc .ddpc-diff td.ddpc-none {{ background: var(--jp-layout-color2, #eeeeee); opacity: .5; }}
.ddpc .ddpc-diff .ddpc-gap td {{ text-align: center; line-height: 14px; opacity: .6;
  background: var(--jp-layout-color2, #eeeeee); }}
.ddpc summary {{ cursor: pointer; }}
"""
