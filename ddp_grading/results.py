"""What a class got: every attempt of a student at an exercise, and the one that counts.

A result is written in one transaction as soon as it exists, so an interrupted batch loses nothing
and resumes. The database makes sure that no exercise counts twice for a student. Points are never
stored: they follow from the checks that passed and the exercise's manifest. An attempt whose checks
are not those of the manifest (another version of the exercise) is named and not counted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from ddp_course import __version__
from ddp_course.checks.verdict import SIGNS, Result, Verdict
from ddp_course.errors import BadArgument, NoEvidence
from ddp_grading.policy import Lateness, Policy
from ddp_grading.roster import Student
from ddp_grading.store import clean, database, tidy_id

FREE = ("ungradable", "infra")  # cost no attempt
KEPT = ("id", "title", "status", "max_points", "message", "mistake", "hint")  # of a check's result


@dataclass(frozen=True)
class Record:
    """One student's attempt at one exercise. Cannot be built against the exercise's manifest.

    attempt    1 for the first submission that could be graded
    sha256     of the graded file, "" if there was none
    submitted  ISO time with zone, or None
    late_s     seconds after the due time; 0 if in time, or within the grace
    penalty    share taken off for lateness, 0 to 1
    note       why there is a penalty, in words
    sandbox    what contained the ranks, or "none (unsafe)"
    """

    student: str
    exercise: str
    attempt: int
    checks: tuple[Result, ...]
    sha256: str = ""
    submitted: str | None = None
    late_s: float = 0.0
    penalty: float = 0.0
    note: str = ""
    sandbox: str = ""
    graded: str = ""
    course: str = __version__

    def __post_init__(self) -> None:
        wanted = manifest(self.exercise)
        if [(one.id, one.max_points) for one in self.checks] != list(wanted.items()):
            raise BadArgument(
                f"its checks or their points are not those of {self.exercise} today",
                action="grade that submission again",
            )
        if any(one.status not in SIGNS for one in self.checks):
            raise BadArgument(f"a check's status is none of {', '.join(SIGNS)}")
        if not 0 <= self.penalty <= 1:  # NaN is neither
            raise BadArgument(f"penalty is {self.penalty!r}, not a share from 0 to 1")
        if not (self.attempt >= 1 and self.late_s >= 0):
            raise BadArgument(f"attempt is {self.attempt!r}, and late_s {self.late_s!r}")

    @property
    def status(self) -> str:
        """ "pass", or that of the first check that did not pass."""
        return next((one.status for one in self.checks if one.status != "pass"), "pass")

    @property
    def points(self) -> int:
        return sum(one.points for one in self.checks)

    @property
    def max_points(self) -> int:
        return sum(one.max_points for one in self.checks)

    @property
    def score(self) -> float:
        """points × (1 - penalty), to two decimals, halves up."""
        exact = self.points * (1 - Decimal(str(self.penalty)))
        return float(exact.quantize(Decimal("0.01"), ROUND_HALF_UP))


_ONE = "student = ? AND exercise = ?"
_COLUMNS = [one.name for one in fields(Record)]


@dataclass(frozen=True)
class Refused:
    """An attempt that counted and is not readable as one, and why."""

    student: str
    exercise: str
    reason: str

    def __str__(self) -> str:
        return f"{self.student} {self.exercise}: {self.reason}"


@dataclass(frozen=True)
class Gradebook:
    """All records that count, by student and exercise; and what is refused."""

    records: Mapping[tuple[str, str], Record]
    refused: tuple[Refused, ...] = ()


def manifest(exercise: str) -> dict[str, int]:
    """The ids of an exercise's checks, in order, and their points."""
    from ddp_course.checks.exercises import EXERCISES

    if exercise not in EXERCISES:
        raise BadArgument(
            f"There is no exercise {exercise!r}.", action="choose one of " + ", ".join(EXERCISES)
        )
    return {check.id: check.points for check in EXERCISES[exercise].checks}


def exercises() -> dict[str, str]:
    """Every exercise's name and title, in the course's order."""
    from ddp_course.checks.exercises import EXERCISES

    return {name: one.title for name, one in EXERCISES.items()}


def record(
    student: Student,
    verdict: Verdict,
    late: Lateness | None = None,
    *,
    sandbox: str,
    sha256: str = "",
    attempt: int = 1,
) -> Record:
    """The record of a verdict; texts are cleaned and cut.

    Raises BadArgument when the verdict does not fit the manifest.
    """
    one = Record(
        student=tidy_id(student.id),
        exercise=verdict.exercise,
        attempt=attempt,
        checks=tuple(map(_cleaned, verdict.results)),
        sha256=sha256,
        sandbox=clean(sandbox),
        graded=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return _judged(one, student, late or Lateness())


def write(out: Path | str, new: Record, *, counts: str = "last") -> Record:
    """Keep an attempt, and mark the one that counts now. → the record that counts"""
    with database(out, make=True) as db:
        earlier = _current(db, new.student, new.exercise, new.sha256)
        return _store(db, [*(one for one in earlier if one.attempt != new.attempt), new], counts)


def choose(tried: Sequence[Record], counts: str) -> Record:
    """Of one student's attempts at one exercise, the one that counts.

    `counts` is "last" or "best" (by score; the later of equals). If the newest failed by our fault
    it is that one: no score stands before it is graded. One with nothing to grade, and one that
    came too late to count, give way to any other.
    """
    if counts not in ("last", "best"):
        raise BadArgument(f"counts is {counts!r}.", action='choose "last" or "best"')
    ordered = sorted(tried, key=lambda one: one.attempt)
    if ordered[-1].status == "infra":
        return ordered[-1]
    graded = [one for one in ordered if one.status not in FREE] or ordered[-1:]
    graded = [one for one in graded if one.penalty < 1] or graded
    if counts == "last":
        return graded[-1]
    return max(graded, key=lambda one: (one.score, one.attempt))


def judge_lateness(
    out: Path | str, student: Student, exercise: str, sha256: str, policy: Policy
) -> Record | None:
    """Apply a policy to what was graded before, for instance after an extension; nothing is run.

    `sha256` is of the file that the student's time of submission belongs to; other attempts keep
    theirs. → the record that counts now, None if there is none.
    """
    with database(out, make=True) as db:
        tried = []
        for one in _current(db, student.id, exercise, sha256):
            mine = student
            if one.sha256 != sha256:
                then = datetime.fromisoformat(one.submitted) if one.submitted else None
                mine = replace(student, submitted=then, attempts=None)
            tried.append(_judged(one, mine, policy.lateness(mine, one.attempt)))
        return _store(db, tried, policy.counts) if tried else None


def read(out: Path | str, student: str, exercise: str) -> Record | None:
    """The record that counts, None if there is none. Raises NoEvidence for one that is refused."""
    with database(out) as db:
        found, refused = _select(db, f"{_ONE} AND counts", tidy_id(student), exercise)
    if refused:
        raise NoEvidence(str(refused[0]), action="grade that submission again")
    return found[0] if found else None


def attempts(out: Path | str, student: str, exercise: str) -> list[Record]:
    """Every readable attempt, the oldest first. One without evidence has the next one's number."""
    with database(out, make=True) as db:
        return _select(db, _ONE, tidy_id(student), exercise)[0]


def next_attempt(earlier: list[Record], sha256: str) -> int:
    """The number of the attempt that a file makes. The same file again is the same attempt."""
    for one in earlier:
        if one.sha256 == sha256 and one.sha256:
            return one.attempt
    return 1 + max((one.attempt for one in earlier if one.status not in FREE), default=0)


def read_all(out: Path | str) -> Gradebook:
    """Every record that counts; what is refused is named. Raises NoEvidence without results."""
    with database(out) as db:
        found, refused = _select(db, "counts")
    return Gradebook({(one.student, one.exercise): one for one in found}, tuple(refused))


def checks_as_dicts(one: Record) -> list[dict[str, Any]]:
    """The checks of a record as plain values, for the database and for exports."""
    return [{name: getattr(check, name) for name in KEPT} for check in one.checks]


def _judged(one: Record, student: Student, late: Lateness) -> Record:
    at = student.submitted.isoformat() if student.submitted else None
    note = clean(late.note)
    return replace(one, submitted=at, late_s=late.late_s, penalty=late.penalty, note=note)


def _cleaned(one: Result) -> Result:
    """A check's result without what is only for the learner who ran it."""
    return Result(
        id=one.id,
        title=clean(one.title),
        status=one.status,
        max_points=one.max_points,
        message=clean(one.message),
        mistake=clean(one.mistake),
        hint=clean(one.hint),
    )


def _select(db: sqlite3.Connection, where: str, *values: str) -> tuple[list[Record], list[Refused]]:
    """The attempts that can be read, and those that cannot; in a stated order."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM attempt WHERE {where} ORDER BY 1, 2, 3"
    records, refused = [], []
    for row in db.execute(query, values):
        try:
            records.append(_record_of(row))
        except (ValueError, TypeError) as error:
            what = error.what if isinstance(error, BadArgument) else "it was edited"
            refused.append(Refused(row[0], row[1], what))
    return records, refused


def _current(db: sqlite3.Connection, student: str, exercise: str, sha256: str) -> list[Record]:
    """The attempts, after forgetting those that failed by our fault on another file than this."""
    found, _ = _select(db, _ONE, student, exercise)
    stale = [one for one in found if one.status == "infra" and one.sha256 != sha256]
    for one in stale:
        db.execute(
            f"DELETE FROM attempt WHERE {_ONE} AND attempt = ?", (student, exercise, one.attempt)
        )
    return [one for one in found if one not in stale]


def _store(db: sqlite3.Connection, tried: Sequence[Record], counts: str) -> Record:
    counted = choose(tried, counts)
    who = counted.student, counted.exercise
    db.execute(f"UPDATE attempt SET counts = 0 WHERE {_ONE}", who)
    places = ", ".join("?" * (len(_COLUMNS) + 1))
    for one in tried:
        values = {**vars(one), "checks": json.dumps(checks_as_dicts(one))}
        db.execute(
            f"INSERT OR REPLACE INTO attempt ({', '.join(_COLUMNS)}, counts) VALUES ({places})",
            [*(values[name] for name in _COLUMNS), one is counted],
        )
    return counted


def _record_of(row: Sequence[Any]) -> Record:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["checks"] = tuple(Result(**one) for one in json.loads(values["checks"]))
    return Record(**values)
