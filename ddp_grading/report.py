"""What a class did, as text and as one page: who, what, and which mistakes were common.

    gather(OUT)        → Book: every student of the roster once, every record that counts
    text(book)         for a terminal
    page(book)         one self-contained HTML file, without scripts

E-mail addresses never appear in either. What could not be believed is named and not counted.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ddp_course.checks.verdict import SIGNS, WORDS
from ddp_course.show.style import text_table
from ddp_grading import results, roster
from ddp_grading.policy import span
from ddp_grading.results import Record, Refused
from ddp_grading.roster import Student

STATES = {
    **{status: (SIGNS[status], WORDS[status]) for status in SIGNS},
    "error": ("✗", "an error"),
    "timeout": ("✗", "it hangs"),
    "blocked": ("–", "not reached"),
    "ungradable": ("○", "nothing to grade"),
    "infra": ("!", "could not be graded"),
    "missing": ("·", "not submitted"),
    "refused": ("!", "record refused"),
}
OPEN = ("infra", "refused")  # no score may be given for these
UNSCORED = (*OPEN, "missing")
ROUNDING = "Scores are rounded to two decimals, halves up, for each exercise; totals add them."
_SHOWN = 10  # common mistakes in the text
_WIDEST = 40  # characters of a cell in the table for a terminal
_ADDRESS = re.compile(r"(?<![\w.+%'-])([\w.+%'-]++)@[\w-]++(?:\.[\w-]++)+")
_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])  # bidi overrides


@dataclass(frozen=True)
class Row:
    """One student and what is known of each exercise.

    A record of "missing" says that nothing was handed in for that exercise.
    """

    student: Student
    records: Mapping[str, Record]  # by exercise
    states: Mapping[str, str]  # by exercise: a status, "missing" or "refused"

    @property
    def score(self) -> float:
        return round(sum(one.score for one in self.records.values()), 2)

    @property
    def max_score(self) -> int:
        return sum(sum(results.manifest(name).values()) for name in self.states)

    @property
    def absent(self) -> bool:
        """True if nothing at all was handed in."""
        return all(state == "missing" for state in self.states.values())

    @property
    def open(self) -> bool:
        """True if something of this student's must be graded again before a score stands."""
        return any(state in OPEN for state in self.states.values())


@dataclass(frozen=True)
class Book:
    """A class: its rows in the roster's order.

    points     the maximum of each exercise that was graded, in the course's order
    strangers  students with records that the roster does not name; not counted
    listed     True if there was a roster
    """

    rows: tuple[Row, ...]
    points: Mapping[str, int]
    titles: Mapping[str, str]
    refused: tuple[Refused, ...] = ()
    strangers: tuple[str, ...] = ()
    listed: bool = True

    @property
    def max_score(self) -> int:
        return sum(self.points.values())

    @property
    def records(self) -> list[Record]:
        return [one for row in self.rows for one in row.records.values()]

    @property
    def complete(self) -> bool:
        """True if every score stands: nothing refused, nothing to be graded again."""
        return not self.refused and not any(row.open for row in self.rows)


def gather(out: Path | str, students: Sequence[Student] | None = None) -> Book:
    """The class in OUT. Without `students`: the roster kept there, else whoever has a record.

    Raises NoEvidence when OUT holds no results.
    """
    book = results.read_all(out)
    students = roster.kept(out) if students is None else students
    listed = students is not None
    if students is None:
        students = [Student(id=name) for name in sorted({name for name, _ in book.records})]
    seen = {exercise for _, exercise in book.records} | {one.exercise for one in book.refused}
    titles = {name: title for name, title in results.exercises().items() if name in seen}
    rows = []
    for student in students:
        mine = {
            name: book.records[student.id, name]
            for name in titles
            if (student.id, name) in book.records
        }
        states = {name: _state(book, student, name, mine.get(name)) for name in titles}
        rows.append(Row(student, mine, states))
    known = {student.id for student in students}
    return Book(
        rows=tuple(rows),
        points={name: sum(results.manifest(name).values()) for name in titles},
        titles=titles,
        refused=book.refused,
        strangers=tuple(sorted({name for name, _ in book.records} - known)),
        listed=listed,
    )


def summary(out: Path | str, students: Sequence[Student] | None = None) -> str:
    """The class in OUT, as text."""
    return text(gather(out, students))


def text(book: Book) -> str:
    """For a terminal: who, what, common mistakes, and what needs a hand."""
    head = ["student", "name", "score", *book.points]
    rows = [[_short(plain(cell)) for cell in _line(book, row)] for row in book.rows]
    parts = [_headline(book), ""]
    if rows:
        parts += [_table(head, rows), _key(book), ""]
    late: dict[tuple[str, str], list[str]] = {}
    for row in book.rows:
        for one in row.records.values():
            if one.note and row.states[one.exercise] != "missing":
                late.setdefault((row.student.id, one.note), []).append(one.exercise)
    if late:
        parts += ["Late or repeated:"]
        parts += [
            f"  {plain(student)} {', '.join(exercises)}: {plain(note)}"
            for (student, note), exercises in late.items()
        ]
        parts += [""]
    parts += [_table(*_statistics(book)), ""] if book.points else []
    mistakes = _mistakes(book)
    if mistakes:
        parts += ["Common mistakes:"]
        parts += [
            f"  {count:4d} × {exercise}: {name}" for exercise, name, count in mistakes[:_SHOWN]
        ]
        parts += [""]
    for title, lines in _attention(book):
        parts += [f"{title} ({len(lines)}):", *(f"  {line}" for line in lines), ""]
    return "\n".join([*parts, ROUNDING])


def page(book: Book) -> str:
    """One HTML file that needs nothing else."""
    title = "Grading report"
    parts = [f"<h1>{title}</h1><p>{_html(_headline(book))}</p>"]
    for heading, lines in _attention(book):
        items = "".join(f"<li>{_html(line)}</li>" for line in lines)
        parts.append(
            f"<details class='attention'><summary>{_html(heading)} ({len(lines)})</summary>"
            f"<ul>{items}</ul></details>"
        )
    head = ["student", "name", "score", *book.points]
    parts.append(_html_table("Students", head, [_html_line(book, row) for row in book.rows]))
    parts.append(f"<p class='quiet'>{_html(_key(book))} {ROUNDING}</p>")
    for caption, (columns, rows) in (
        ("Exercises", _statistics(book)),
        ("Checks", _checks(book)),
        ("Common mistakes", (["exercise", "mistake", "students"], _as_text(_mistakes(book)))),
    ):
        cells = [[_html(cell) for cell in row] for row in rows]
        parts.append(_html_table(caption, columns, cells))
    parts.append("<h2>Details</h2>" + "".join(_details(row) for row in book.rows))
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_CSS}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def plain(text: str) -> str:
    """One line without control characters, text-direction overrides and e-mail addresses."""
    kept = "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter
        for letter in text.translate(_TURNS)
    )
    return _ADDRESS.sub(r"\1@…", " ".join(kept.split()))


def _short(text: str) -> str:
    """One long name must not push the columns of a class out of sight."""
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _state(book: results.Gradebook, student: Student, name: str, mine: Record | None) -> str:
    if mine:
        return "missing" if mine.status == "ungradable" and not mine.sha256 else mine.status
    return "refused" if results.refused_for(book, student.id, name) else "missing"


def _headline(book: Book) -> str:
    active = sum(not row.absent for row in book.rows)
    people = f"{len(book.rows)} students{'' if book.listed else ' (no roster)'}, {active} submitted"
    scores = [row.score for row in book.rows if not row.absent and not row.open]
    mean = (
        f"; mean {_number(statistics.fmean(scores))} of {book.max_score} points" if scores else ""
    )
    stamp = ""
    if unsafe := sum("unsafe" in one.sandbox for one in book.records):
        stamp = f"; NOT SANDBOXED: {unsafe} of {len(book.records)} results"
    return people + mean + stamp


def _line(book: Book, row: Row) -> list[str]:
    total = "–" if row.absent else _number(row.score)
    score = f"{total}/{book.max_score}" + (" !" if row.open else "")
    return [
        row.student.id,
        row.student.name,
        score,
        *(_cell(row, name) for name in book.points),
    ]


def _cell(row: Row, name: str) -> str:
    sign = STATES[row.states[name]][0]
    one = row.records.get(name)
    if one is None or row.states[name] in UNSCORED:
        return sign
    cut = f" −{100 * one.penalty:g}%" if one.penalty else ""
    return f"{sign} {_number(one.score)}{cut}"


def _key(book: Book) -> str:
    used = {state for row in book.rows for state in row.states.values()}
    signs: dict[str, list[str]] = {}
    for state, (sign, word) in STATES.items():
        if state in used:
            signs.setdefault(sign, []).append("not passed" if state == "fail" else word)
    return "  ".join(f"{sign} {', '.join(words)}" for sign, words in signs.items())


def _statistics(book: Book) -> tuple[list[str], list[list[str]]]:
    head = ["exercise", "passed", "graded", "mean", "median", "of", "nothing to grade", "absent"]
    rows = []
    for name, most in book.points.items():
        graded = [
            row.records[name]
            for row in book.rows
            if row.states[name] not in ("ungradable", *UNSCORED)
        ]
        scores = [one.score for one in graded]
        rows.append(
            [
                f"{name} {book.titles[name]}",
                str(sum(one.status == "pass" for one in graded)),
                str(len(graded)),
                _number(statistics.fmean(scores)) if scores else "–",
                _number(statistics.median(scores)) if scores else "–",
                str(most),
                str(sum(row.states[name] == "ungradable" for row in book.rows)),
                str(sum(row.states[name] == "missing" for row in book.rows)),
            ]
        )
    return head, rows


def _checks(book: Book) -> tuple[list[str], list[list[str]]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    titles: dict[tuple[str, str], str] = {}
    for one in book.records:
        for mark in one.checks:
            titles[one.exercise, mark.id] = mark.title
            counts[one.exercise, mark.id, mark.status] += 1
    head = ["exercise", "check", *(state for state in SIGNS)]
    rows = [
        [name, titles[name, check], *(str(counts[name, check, state] or "") for state in SIGNS)]
        for name in book.points
        for check in results.manifest(name)
        if (name, check) in titles
    ]
    return head, rows


def _mistakes(book: Book) -> list[tuple[str, str, int]]:
    """(exercise, mistake, how many students), the most common first."""
    found: Counter[tuple[str, str]] = Counter()
    for one in book.records:
        for mistake in {plain(mark.mistake) for mark in one.checks if mark.mistake}:
            found[one.exercise, mistake] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(exercise, mistake, count) for (exercise, mistake), count in ordered]


def _attention(book: Book) -> list[tuple[str, list[str]]]:
    """What a person must see to: (heading, lines)."""
    again = [
        f"{plain(row.student.id)} {name}: {plain(_why(row, name))}"
        for row in book.rows
        for name, state in row.states.items()
        if state == "infra"
    ]
    absent = [
        " ".join(filter(None, [plain(row.student.id), plain(row.student.name)]))
        for row in book.rows
        if row.absent
    ]
    zones = sorted({row.student.zone for row in book.rows if row.student.zone})
    found = [
        ("Could not be graded, grade again: our fault, not theirs", again),
        ("Refused, not counted", [plain(str(one)) for one in book.refused]),
        ("Records of people who are not in the roster", [plain(name) for name in book.strangers]),
        ("Not submitted", absent if book.listed else []),
        ("Times without a zone were taken as", zones),
    ]
    return [(title, lines) for title, lines in found if lines]


def _why(row: Row, name: str) -> str:
    return next(
        (mark.message for mark in row.records[name].checks if mark.message), "no reason kept"
    )


def _details(row: Row) -> str:
    parts = []
    for name, one in row.records.items():
        sign, word = STATES[one.status]
        facts = [f"{_number(one.score)} of {one.max_points} points"]
        if row.states[name] == "missing":
            sign, word = STATES["missing"]
        if one.submitted:
            facts.append(f"submitted {one.submitted}")
        if one.late_s:
            facts.append(f"{span(one.late_s)} late")
        facts += [one.note] if one.note else []
        facts += [f"attempt {one.attempt}", f"sandbox: {one.sandbox}", f"graded {one.graded}"]
        checks = "".join(
            f"<li>{SIGNS[mark.status]} {_html(mark.title)} ({mark.points}/{mark.max_points})"
            + "".join(
                f"<div class='quiet'>{_html(words[:600])}</div>"
                for words in (mark.message, mark.mistake and f"It looks like: {mark.mistake}.")
                if words
            )
            + "</li>"
            for mark in one.checks
        )
        parts.append(
            f"<h3>{sign} {name}: {_html(word)}</h3>"
            f"<p class='quiet'>{_html('; '.join(facts))}</p><ul>{checks}</ul>"
        )
    if not parts:
        return ""
    who = _html(f"{row.student.id} {row.student.name}".strip())
    return f"<details><summary><bdi>{who}</bdi></summary>{''.join(parts)}</details>"


def _html_line(book: Book, row: Row) -> list[str]:
    cells = _line(book, row)
    shown = [f"<bdi>{_html(cell)}</bdi>" for cell in cells[:2]] + [_html(cells[2])]
    for name, cell in zip(book.points, cells[3:], strict=True):
        word = STATES[row.states[name]][1]
        one = row.records.get(name)
        tip = f"{word}; {one.note}" if one and one.note else word
        shown.append(f"<span title='{_html(tip)}'>{_html(cell)}</span>")
    return shown


def _html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th scope='col'>{_html(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _html(text: str) -> str:
    return escape(plain(text))


def _as_text(rows: Iterable[tuple[str, str, int]]) -> list[list[str]]:
    return [[exercise, name, str(count)] for exercise, name, count in rows]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return text_table(head, rows)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


_CSS = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 24px auto;
  padding: 0 16px; }
table { border-collapse: collapse; margin: 20px 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 18px; font-weight: 600; padding: 4px 0; }
th, td { padding: 3px 12px 3px 0; text-align: left; border-bottom: 1px solid #8885; }
th { font-weight: 400; opacity: .75; }
summary { cursor: pointer; }
.quiet { opacity: .75; }
.attention { border-left: 4px solid #d55e00; padding-left: 12px; margin: 8px 0; }
"""
