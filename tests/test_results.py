"""Grades in the database: what cannot be built, what is refused, what survives."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from gradebook import NAMES, STATUSES, any_text, edit, fuzz, record, student_ids
from hypothesis import given
from hypothesis import strategies as st
from launching import until

from ddp_course.errors import BadArgument, CannotRun, NoEvidence
from ddp_grading import policy, results, roster, store
from ddp_grading.roster import Student


@pytest.mark.parametrize(
    "change",
    [
        *({"penalty": bad} for bad in (math.nan, math.inf, -math.inf, -0.001, 1.01)),
        {"late_s": -1},
        {"late_s": math.nan},
        {"attempt": 0},
        {"exercise": "ex99"},
        {"exercise": "ex00"},
        {"checks": ()},
        {"checks": record("s1").checks[:1]},
        {"checks": record("s1").checks[::-1]},
        {"checks": tuple(replace(one, max_points=9) for one in record("s1").checks)},
        {"checks": tuple(replace(one, status="excellent") for one in record("s1").checks)},
    ],
)
def test_a_record_against_its_manifest_or_out_of_range_cannot_be_built(
    change: dict[str, Any],
) -> None:
    with pytest.raises(BadArgument):
        replace(record("s1"), **change)


@fuzz
@given(st.lists(st.sampled_from(STATUSES), min_size=1), st.floats(0, 1))
def test_points_and_score_follow_from_the_checks(statuses: list[str], penalty: float) -> None:
    one = record("s1", statuses=statuses, penalty=penalty)
    assert one.points == sum(c.max_points for c in one.checks if c.status == "pass")
    assert 0 <= one.score <= one.points <= one.max_points
    assert (one.status == "pass") == (one.points == one.max_points)


def test_scores_are_rounded_to_two_decimals_with_halves_up() -> None:
    assert record("s1", penalty=0.1).score == 3.6
    assert record("s1", penalty=0.99875).score == 0.01  # 0.005
    assert record("s1", penalty=1 / 3).score == 2.67


@fuzz
@given(
    student_ids, st.sampled_from(NAMES), st.lists(st.sampled_from(STATUSES), min_size=1), any_text
)
def test_every_record_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    student: str,
    exercise: str,
    statuses: list[str],
    message: str,
) -> None:
    out = tmp_path_factory.mktemp("out")
    new = record(student, exercise, statuses, message=message, mistake=message, note=message)
    assert results.write(out, new) == new
    assert results.read(out, student, exercise) == new
    assert results.read_all(out) == results.Gradebook({(new.student, exercise): new})
    assert [path.name for path in out.iterdir()] == ["grades.db"]


@fuzz
@given(student_ids, student_ids)
def test_two_ids_never_share_a_file_name_even_where_case_is_ignored(one: str, other: str) -> None:
    first, second = store.folder_name(one), store.folder_name(other)
    assert (first.casefold() == second.casefold()) == (store.tidy_id(one) == store.tidy_id(other))
    assert first.isascii() and "/" not in first and not first.startswith(".") and len(first) < 200


def test_ids_that_differ_in_case_or_composition() -> None:
    assert store.folder_name("Ann").casefold() != store.folder_name("ann").casefold()
    parted = unicodedata.normalize("NFD", "Zoë")
    assert parted != "Zoë"
    assert store.folder_name("Zoë") == store.folder_name(parted)
    for name in ("..", ".", "/etc/passwd", "a/../b", "~root", "CON", "%2e%2e"):
        assert "/" not in store.folder_name(name)
        assert store.folder_name(name) not in ("", ".", "..")
    for name in ("", " ", "\ufeff", "a\nb", "\udc80"):
        with pytest.raises(BadArgument):
            store.folder_name(name)


def checks(change: Any) -> Any:
    """Change the first check of a record's JSON."""

    def changed(text: str) -> str:
        data = json.loads(text)
        data[0].update(change)
        return json.dumps(data)

    return changed


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("checks", lambda text: text[:40]),
        ("checks", lambda text: "[]"),
        ("checks", lambda text: "7"),
        ("checks", lambda text: '["pass"]'),
        ("checks", lambda text: b"\xff"),
        ("checks", checks({"max_points": 99})),
        ("checks", checks({"id": "other"})),
        ("checks", checks({"status": {"pass": 1}})),
        ("checks", checks({"bonus": 10})),
        ("penalty", lambda number: -5.0),
        ("penalty", lambda number: "none"),
        ("late_s", lambda number: -1),
        ("exercise", lambda name: "ex99"),
    ],
)
def test_what_does_not_fit_the_manifest_is_named_and_not_counted(
    tmp_path: Path, column: str, change: Any
) -> None:
    """Another version of the exercise, or a hand in the database."""
    results.write(tmp_path, record("s1"))
    results.write(tmp_path, record("s0"))
    edit(tmp_path, "s1", "ex02", column, change)
    book = results.read_all(tmp_path)
    assert list(book.records) == [("s0", "ex02")]
    assert [one.student for one in book.refused] == ["s1"]
    assert book.refused[0].reason
    if column != "exercise":
        with pytest.raises(NoEvidence):
            results.read(tmp_path, "s1", "ex02")
        assert results.attempts(tmp_path, "s1", "ex02") == []
        again = record("s1", statuses=["fail"])
        assert results.write(tmp_path, again) == again, "grading again mends it"
        assert results.read_all(tmp_path).refused == ()


def test_the_database_itself_allows_one_result_for_each_student_and_exercise(
    tmp_path: Path,
) -> None:
    results.write(tmp_path, record("s1", sha256=sha("a")))
    results.write(tmp_path, record("s1", sha256=sha("b"), attempt=2))
    with (
        closing(sqlite3.connect(tmp_path / store.NAME)) as db,
        pytest.raises(sqlite3.IntegrityError),
    ):
        db.execute("UPDATE attempt SET counts = 1")


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoEvidence, match="grade DIR"):
        results.read_all(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / store.NAME).touch()  # a grader has made it and not filled it yet
    with pytest.raises(NoEvidence, match="grade DIR"):
        results.read_all(tmp_path)


def test_results_of_an_earlier_version_are_named_and_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "results" / "s1" / "ex02.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    for use in (
        lambda: results.read_all(tmp_path),
        lambda: results.write(tmp_path, record("s1")),
        lambda: roster.keep(tmp_path, [Student("s1")]),
    ):
        with pytest.raises(NoEvidence, match=r"earlier version(.|\n)*--out NEW"):
            use()
    assert old.read_text() == "{}"
    assert not (tmp_path / store.NAME).exists()


@pytest.mark.parametrize("raw", [b"no database", b"SQLite format 3\0" + 100 * b"x"])
def test_a_damaged_database_is_refused_in_words(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / store.NAME).write_bytes(raw)
    for use in (lambda: results.read_all(tmp_path), lambda: results.write(tmp_path, record("s1"))):
        with pytest.raises(NoEvidence, match=r"damaged(.|\n)*grade again"):
            use()


def test_a_write_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = record("s1", statuses=["fail"])
    results.write(tmp_path, old)
    with closing(sqlite3.connect(tmp_path / store.NAME)) as db, db:
        (size,) = db.execute("PRAGMA page_count").fetchone()
    connect = sqlite3.connect

    def full(*words: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*words, **more)
        db.execute(f"PRAGMA max_page_count = {size}")  # as on a full disk
        return db

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(CannotRun, match=r"full(.|\n)*resumes"):
        results.write(tmp_path, record("s1", message=20_000 * "x", mistake=20_000 * "y"))
    monkeypatch.undo()
    assert results.read(tmp_path, "s1", "ex02") == old


def test_a_killed_writer_leaves_whole_results(tmp_path: Path) -> None:
    code = """
import sys; from gradebook import record; from ddp_grading import results
for n in range(10**6):
    results.write(sys.argv[1], record(f"s{n}"))
"""
    writer = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "out"],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    until((tmp_path / "out" / store.NAME).exists, "the database")
    until(lambda: len(results.read_all(tmp_path / "out").records) > 5, "some results")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    book = results.read_all(tmp_path / "out")
    assert set(book.records) == {(f"s{n}", "ex02") for n in range(len(book.records))}
    assert book.refused == ()


def test_many_writers_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: results.write(out, record(f"s{n}")), range(16)))
    assert len(results.read_all(out).records) == 16
    assert [path for path in out.iterdir() if path.stat().st_mode & 0o007] == []


def sha(letter: str) -> str:
    return letter * 64


def test_the_last_attempt_counts_or_the_best(tmp_path: Path) -> None:
    good = record("s1", sha256=sha("a"), attempt=1)
    bad = record("s1", statuses=["fail"], sha256=sha("b"), attempt=2)
    for counts, wanted in (("last", bad), ("best", good)):
        out = tmp_path / counts
        results.write(out, good, counts=counts)
        assert results.write(out, bad, counts=counts) == wanted
        assert results.read(out, "s1", "ex02") == wanted
        assert results.attempts(out, "s1", "ex02") == [good, bad]
    better = replace(bad, attempt=3)
    assert results.write(tmp_path / "best", better, counts="best") == good
    equal = record("s1", sha256=sha("c"), attempt=4)
    assert results.write(tmp_path / "best", equal, counts="best") == equal
    with pytest.raises(BadArgument):
        results.write(tmp_path / "best", equal, counts="mean")


def test_what_has_nothing_to_grade_costs_no_attempt_and_takes_nothing_away(tmp_path: Path) -> None:
    good = record("s1", sha256=sha("a"), attempt=1)
    results.write(tmp_path, good)
    empty = record("s1", statuses=["ungradable"], sha256=sha("b"), attempt=2)
    assert results.write(tmp_path, empty) == good
    assert results.next_attempt(results.attempts(tmp_path, "s1", "ex02"), sha("a")) == 1
    assert results.next_attempt(results.attempts(tmp_path, "s1", "ex02"), sha("c")) == 2
    second = record("s1", statuses=["fail"], sha256=sha("c"), attempt=2)
    assert results.write(tmp_path, second) == second
    assert results.next_attempt(results.attempts(tmp_path, "s1", "ex02"), sha("d")) == 3


def test_our_fault_is_seen_until_it_is_graded_again(tmp_path: Path) -> None:
    good = record("s1", sha256=sha("a"), attempt=1)
    for counts in ("last", "best"):
        out = tmp_path / counts
        results.write(out, good, counts=counts)
        ours = record("s1", statuses=["infra"], sha256=sha("b"), attempt=2)
        assert results.write(out, ours, counts=counts) == ours
        assert results.next_attempt(results.attempts(out, "s1", "ex02"), sha("b")) == 2
        again = record("s1", statuses=["fail"], sha256=sha("b"), attempt=2)
        assert results.write(out, again, counts=counts) == (good if counts == "best" else again)


def test_an_attempt_that_lateness_leaves_nothing_of_does_not_replace_an_earlier_one(
    tmp_path: Path,
) -> None:
    good = record("s1", sha256=sha("a"), attempt=1)
    closed = record("s1", sha256=sha("b"), attempt=2, late_s=9e5, penalty=1.0, note="too late")
    assert closed.score == 0
    results.write(tmp_path, good)
    assert results.write(tmp_path, closed) == good
    assert results.write(tmp_path / "only", closed) == closed


def test_our_fault_on_a_file_that_was_taken_back_is_forgotten(tmp_path: Path) -> None:
    good = record("s1", sha256=sha("a"), attempt=1)
    ours = record("s1", statuses=["infra"], sha256=sha("b"), attempt=2)
    for take_back in (
        lambda: results.write(tmp_path, good),
        lambda: results.judge_lateness(tmp_path, Student("s1"), "ex02", sha("a"), RULE),
    ):
        results.write(tmp_path, good)
        assert results.write(tmp_path, ours) == ours
        assert take_back() == good
        assert results.read(tmp_path, "s1", "ex02") == good


DUE = datetime(2026, 3, 1, tzinfo=UTC)
RULE = policy.make(late="50% per day")


def test_an_extension_is_applied_without_a_run(tmp_path: Path) -> None:
    student = Student("s1", due=DUE, submitted=DUE + timedelta(hours=30))
    first = record("s1", sha256=sha("a"), submitted=DUE, statuses=["pass", "fail"])
    results.write(tmp_path, first)
    late = record(
        "s1", sha256=sha("b"), attempt=2, submitted=student.submitted, late_s=108_000.0, penalty=1.0
    )
    assert results.write(tmp_path, late) == first, "nothing is left of the second"
    longer = replace(student, due=DUE + timedelta(hours=10))
    found = results.judge_lateness(tmp_path, longer, "ex02", sha("b"), RULE)
    assert found
    assert (found.attempt, found.penalty, found.score) == (2, 0.5, 2.0)
    assert results.read(tmp_path, "s1", "ex02") == found
    assert [one.score for one in results.attempts(tmp_path, "s1", "ex02")] == [3.0, 2.0]
    best = replace(RULE, counts="best")
    assert results.judge_lateness(tmp_path, longer, "ex02", sha("b"), best) == first
    assert results.read(tmp_path, "s1", "ex02") == first
