"""What a class did, as text and as one page: who, what, and which mistakes were common.

    gather(OUT)        → Book: every student of the roster once, every record that counts
    text(book)         for a terminal
    page(book)         one self-contained HTML file, without scripts

E-mail addresses never appear in either. What is refused is named and not counted.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ddp_course.checks.verdict import SIGNS, WORDS
from ddp_course.show.document import Block, Document, Fold, Line, Note, Table, Title, Words, style
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
    "refused": ("!", "must be graded again"),
}
OPEN = ("infra", "refused")  # no score may be given for these
UNSCORED = (*OPEN, "missing")
ROUNDING = "Scores are rounded to two decimals, halves up, for each exercise; totals add them."
_SHOWN = 10  # common mistakes in the text
_WIDEST = 40  # letters of a name in the table for a terminal
_REASON = 300  # letters of one reason
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
    def who(self) -> str:
        return f"{self.student.id} {self.student.name}".strip()

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

    def why(self, name: str) -> str:
        """Why an exercise has not all its points, in one line; "" if it has."""
        one, state = self.records.get(name), self.states[name]
        if one is None:
            return STATES[state][1]
        found: dict[str, str] = {}  # what is said → what it is said of
        for check in one.checks:
            if check.status not in ("pass", "blocked"):
                said = next(iter(check.message.splitlines()), "") or STATES[check.status][1]
                said += f" (it looks like: {check.mistake})" if check.mistake else ""
                found.setdefault(said, "" if check.status in results.FREE else f"{check.title}: ")
        reasons = [one.note, *(f"{title}{said}" for said, title in found.items())]
        return plain("; ".join(filter(None, reasons)))[:_REASON]


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
    found = results.read_all(out)
    students = roster.kept(out) if students is None else students
    listed = students is not None
    refused = {(one.student, one.exercise) for one in found.refused}
    keys = found.records.keys() | refused
    if students is None:
        students = [Student(id=name) for name in sorted({name for name, _ in keys})]
    seen = {exercise for _, exercise in keys}
    titles = {name: title for name, title in results.exercises().items() if name in seen}
    rows = []
    for student in students:
        mine = {
            name: found.records[student.id, name]
            for name in titles
            if (student.id, name) in found.records
        }
        states = {
            name: "refused" if (student.id, name) in refused else _state(mine.get(name))
            for name in titles
        }
        rows.append(Row(student, mine, states))
    return Book(
        rows=tuple(rows),
        points={name: sum(results.manifest(name).values()) for name in titles},
        titles=titles,
        refused=found.refused,
        strangers=tuple(sorted({name for name, _ in keys} - {one.id for one in students})),
        listed=listed,
    )


def summary(out: Path | str, students: Sequence[Student] | None = None) -> str:
    """The class in OUT, as text."""
    return text(gather(out, students))


def text(book: Book) -> str:
    """For a terminal: who, what, common mistakes, and what needs a hand."""
    parts = [block for block in (*_overview(book), *_attention(book)) if block != ""]
    return "\n\n".join(Document(block).text() for block in parts)


def page(book: Book) -> str:
    """One HTML file that needs nothing else."""
    blocks = [*_attention(book), *_overview(book), *_checks(book), Line("Details", look="title")]
    body = Document(Title("Grading report"), *blocks, *_details(book)).body()
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><title>Grading report</title>"
        f"{style()}</head><body>{body}</body></html>\n"
    )


def plain(text: str) -> str:
    """One line without control characters, text-direction overrides and e-mail addresses."""
    kept = "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter
        for letter in text.translate(_TURNS)
    )
    return _ADDRESS.sub(r"\1@…", " ".join(kept.split()))


@dataclass(frozen=True)
class _Name:
    """What a person is called: whole on a page, where its direction is its own; cut in text."""

    words: str

    def text(self) -> str:
        name = plain(self.words)
        return name if len(name) <= _WIDEST else name[: _WIDEST - 1] + "…"

    def html(self) -> str:
        return f"<bdi>{escape(plain(self.words))}</bdi>"


def _state(mine: Record | None) -> str:
    if mine is None or (mine.status == "ungradable" and not mine.sha256):
        return "missing"
    return mine.status


def _overview(book: Book) -> list[Block]:
    head = ["student", "name", "score", *book.points]
    used = {state for row in book.rows for state in row.states.values()}
    words: dict[str, list[str]] = {}
    for state, (sign, word) in STATES.items():
        if state in used:
            words.setdefault(sign, []).append("not passed" if state == "fail" else word)
    key = "  ".join(f"{sign} {', '.join(each)}" for sign, each in words.items())
    mistakes = _mistakes(book)
    return [
        _headline(book),
        Table(head, [_line(book, row) for row in book.rows]) if book.rows else "",
        Note(key),
        _statistics(book) if book.points else "",
        Table(("students", "exercise", "common mistake"), mistakes) if mistakes else "",
        Note(ROUNDING),
    ]


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


def _line(book: Book, row: Row) -> list[Words]:
    total = "–" if row.absent else _number(row.score)
    score = f"{total}/{book.max_score}" + (" !" if row.open else "")
    cells = [_cell(row, name) for name in book.points]
    return [_Name(row.student.id), _Name(row.student.name), score, *cells]


def _cell(row: Row, name: str) -> str:
    sign = STATES[row.states[name]][0]
    one = row.records.get(name)
    if one is None or row.states[name] in UNSCORED:
        return sign
    cut = f" −{100 * one.penalty:g}%" if one.penalty else ""
    return f"{sign} {_number(one.score)}{cut}"


def _statistics(book: Book) -> Table:
    head = ["exercise", "passed", "graded", "mean", "median", "of", "nothing to grade", "absent"]
    rows = []
    for name, most in book.points.items():
        states = Counter(row.states[name] for row in book.rows)
        graded = [
            row.records[name].score
            for row in book.rows
            if row.states[name] not in ("ungradable", *UNSCORED)
        ]
        mean, median = (
            (_number(statistics.fmean(graded)), _number(statistics.median(graded)))
            if graded
            else ("–", "–")
        )
        counts = [states["pass"], len(graded), mean, median, most]
        counts += [states["ungradable"], states["missing"]]
        rows.append([f"{name} {book.titles[name]}", *map(str, counts)])
    return Table(head, rows)


def _checks(book: Book) -> list[Block]:
    counts: Counter[tuple[str, str, str]] = Counter()
    titles: dict[tuple[str, str], str] = {}
    for one in book.records:
        for check in one.checks:
            titles[one.exercise, check.id] = plain(check.title)
            counts[one.exercise, check.id, check.status] += 1
    rows = [
        [name, titles[name, check], *(str(counts[name, check, state] or "") for state in SIGNS)]
        for name in book.points
        for check in results.manifest(name)
        if (name, check) in titles
    ]
    return [Table(["exercise", "check", *SIGNS], rows)] if rows else []


def _mistakes(book: Book) -> list[tuple[str, str, str]]:
    """(how many students, exercise, mistake), the most common first."""
    found = Counter(
        (one.exercise, mistake)
        for one in book.records
        for mistake in {plain(check.mistake) for check in one.checks if check.mistake}
    )
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(str(count), exercise, mistake) for (exercise, mistake), count in ordered[:_SHOWN]]


def _attention(book: Book) -> list[Block]:
    """What a person must see to, and what was assumed."""
    late = [
        f"{row.who}, {name}: {one.note}"
        for row in book.rows
        for name, one in row.records.items()
        if one.note and row.states[name] != "missing"
    ]
    again = [
        f"{row.who}, {name}: {row.why(name)}"
        for row in book.rows
        for name, state in row.states.items()
        if state == "infra"
    ]
    absent = [row.who for row in book.rows if row.absent and book.listed]
    assumed = sorted({note for row in book.rows for note in row.student.assumed})
    found = {
        "Could not be graded; grade again: our fault, not theirs": again,
        "Not counted": [str(one) for one in book.refused],
        "Results of people who are not in the roster": book.strangers,
        "Late or repeated": late,
        "Not submitted": absent,
        "How times were read": assumed,
    }
    return [
        Fold(f"{title} ({len(lines)})", *map(plain, lines))
        for title, lines in found.items()
        if lines
    ]


def _details(book: Book) -> list[Block]:
    return [
        Fold(plain(row.who), *(block for name in row.records for block in _detail(row, name)))
        for row in book.rows
        if row.records
    ]


def _detail(row: Row, name: str) -> list[Block]:
    one = row.records[name]
    sign, word = STATES[row.states[name]]
    facts = [f"{_number(one.score)} of {one.max_points} points"]
    facts += [f"submitted {one.submitted}"] if one.submitted else []
    facts += [f"{span(one.late_s)} late"] if one.late_s else []
    facts += [one.note] if one.note else []
    facts += [f"attempt {one.attempt}", f"sandbox: {one.sandbox}", f"graded {one.graded}"]
    blocks: list[Block] = [Line(f"{sign} {name}: {word}"), Note(plain("; ".join(facts)))]
    for check in one.checks:
        score = f"({check.points}/{check.max_points})"
        blocks.append(f"{SIGNS[check.status]} {plain(check.title)} {score}")
        looks = check.mistake and f"It looks like: {check.mistake}."
        blocks += [Note(plain(words)[:600]) for words in (check.message, looks) if words]
    return blocks


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
