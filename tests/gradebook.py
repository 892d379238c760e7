"""Records, rosters and files for the tests of grading; no job is run for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.verdict import SIGNS, Result, Verdict
from ddp_grading import results, roster, store
from ddp_grading.policy import Lateness
from ddp_grading.results import Record
from ddp_grading.roster import Student

BOX = "bubblewrap 0.8.0"
STATUSES = list(SIGNS)
NAMES = list(EXERCISES)

# However slow the machine is: no test of ours fails for its time.
fuzz = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)

# What people are called, and what tries to be more than a name.
DIFFICULT = [
    'O\'Brien, Áine "Annie"',
    "Nguyễn Thị Minh Khai",
    "עברית שם",
    "محمد علي",
    "👩‍💻 Ada",
    '=HYPERLINK("http://x")',
    "+1",
    "-2+3",
    "@SUM(A1)",
    "<script>alert(1)</script>",
    "a;b|c\\d",
    "Ⅷ ﬁ",
    "x" * 150,
]

texts = st.text(st.characters(codec="utf-8"), max_size=40)
any_text = st.text(max_size=60)  # with surrogates and control characters
student_ids = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30)
    .map(lambda text: store.tidy_id(" ".join(text.split())))
    .filter(bool)
)


def verdict(exercise: str, statuses: list[str], message: str = "", mistake: str = "") -> Verdict:
    """A verdict with these statuses of the checks, in order; the last is repeated."""
    checks = EXERCISES[exercise].checks
    filled = [*statuses, *[statuses[-1]] * len(checks)][: len(checks)]
    return Verdict(
        exercise,
        EXERCISES[exercise].title,
        tuple(
            Result(one.id, one.title, status, one.points, message=message, mistake=mistake)
            for one, status in zip(checks, filled, strict=True)
        ),
    )


def record(
    student: str, exercise: str = "ex02", statuses: list[str] | None = None, **more: object
) -> Record:
    """A record as the grader makes it."""
    texts = {key: more.pop(key) for key in ("message", "mistake") if key in more}
    late = Lateness(**{key: more.pop(key) for key in ("late_s", "penalty", "note") if key in more})
    person = Student(student, submitted=more.pop("submitted", None))
    found = verdict(exercise, statuses or ["pass"], **texts)
    one = results.record(person, found, late, **{"sandbox": BOX, **more})
    return replace(one, graded="2026-03-02T00:00:00+00:00")


def make_class(out: Path) -> list[Student]:
    """Passed, failed, late, hanging, nothing to grade, our fault, absent, forged: one each."""
    students = [
        Student("s1", "Ada Lovelace", "ada@example.org", "A"),
        Student("s2", DIFFICULT[0], "annie@example.org", "A"),
        Student("s3", "=cmd|' /C calc'!A0", "carl@example.org", "B"),
        Student("s4", "محمد علي", "mohammed@example.org", "B"),
        Student("s5", "<b>Bold</b>", "bold@example.org", "B"),
        Student("s6", "Our Fault", "six@example.org", "B"),
        Student("s7", "Nobody Here", "seven@example.org", "B"),
        Student("S8", "Forger", "eight@example.org", "B"),
    ]
    roster.keep(out, students)
    late = {"late_s": 90_000.0, "penalty": 0.2, "note": "1 day 1 h late: −20 %"}
    for one in (
        record("s1", "ex00"),
        record("s1", "ex02"),
        record("s2", "ex00", ["fail", "blocked"], message="ask ada@example.org", mistake="a sum"),
        record("s2", "ex02", ["pass", "fail"], mistake="weights changed"),
        record("s3", "ex02", **late),
        record("s4", "ex02", ["timeout"], message="\x1b[31mred\x07 \u202e reversed"),
        record("s5", "ex02", ["ungradable"], message="no Python", sha256="5" * 64),
        record("s5", "ex00", ["ungradable"], message="No answer was handed in"),
        record("s6", "ex00"),
        record("s6", "ex02", ["infra"], message="the sandbox did not start"),
        record("S8", "ex02", ["fail"]),
    ):
        results.write(out, one)
    edit(
        out, "S8", "ex02", "checks", lambda text: text.replace('"max_points": 3', '"max_points": 9')
    )
    return students


def edit(out: Path, student: str, exercise: str, column: str, change: Callable[[str], Any]) -> None:
    """Change a record in the database, as a person with an editor could."""
    with closing(sqlite3.connect(out / store.NAME)) as db, db:
        where = "WHERE student = ? AND exercise = ? AND counts", (student, exercise)
        (old,) = db.execute(f"SELECT {column} FROM attempt {where[0]}", where[1]).fetchone()
        new = change(old)
        assert new != old
        db.execute(f"UPDATE attempt SET {column} = ? {where[0]}", (new, *where[1]))
