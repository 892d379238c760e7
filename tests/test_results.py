"""Records: what cannot be built, what is refused, what survives."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import os
import shutil
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gradebook import NAMES, STATUSES, any_text, fuzz, record, student_ids
from hypothesis import given
from hypothesis import strategies as st

from ddp_course.errors import BadArgument, NoEvidence
from ddp_grading import policy, results, roster
from ddp_grading.results import Mark, Score
from ddp_grading.roster import Student

BAD_NUMBERS = [10**400, math.nan, math.inf, -math.inf, -1, -0.001, True, "3", None]


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 4.01])
def test_a_score_out_of_range_cannot_be_built(bad: Any) -> None:
    with pytest.raises(BadArgument):
        Score(bad, 4)


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 1.01])
def test_a_penalty_out_of_range_cannot_be_built(bad: Any) -> None:
    with pytest.raises(BadArgument):
        Score(3, 4, bad)


def test_scores_are_rounded_to_two_decimals_with_halves_up() -> None:
    assert Score(1, 1, 0.995).value == 0.01  # 0.005
    assert Score(3, 4, 0.1).value == 2.7
    assert Score(1, 3, 1 / 3).value == 0.67


@fuzz
@given(st.integers(0, 50), st.integers(0, 50), st.floats(0, 1))
def test_no_penalty_leaves_more_than_the_points_or_less_than_nothing(
    points: int, more: int, penalty: float
) -> None:
    value = Score(points, points + more, penalty).value
    assert 0 <= value <= points


@pytest.mark.parametrize(
    "change",
    [
        {"points": 3},
        {"points": 5},
        {"points": -1},
        {"points": True},
        {"max_points": 100},
        {"status": "fail"},
        {"status": "excellent"},
        {"exercise": "ex99"},
        {"exercise": "../ex02"},
        {"exercise": "ex00"},
        {"score": 100.0},
        {"score": math.nan},
        {"penalty": -0.5},
        {"penalty": 0.5},
        {"late_s": -1},
        {"late_s": math.inf},
        {"attempt": 0},
        {"attempt": 1.5},
        {"submitted": "yesterday"},
        {"graded": "2026-03-01T10:00"},
        {"sha256": "abc"},
        {"checks": ()},
        {"student": ""},
        {"student": " s1"},
        {"student": "a\x00b"},
        {"note": "a\x1b[2Jb"},
        {"version": 2},
    ],
)
def test_a_record_that_contradicts_itself_cannot_be_built(change: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        replace(record("s1"), **change)


@pytest.mark.parametrize(
    "change",
    [{"points": 0}, {"points": 4}, {"points": 3.0}, {"max_points": -1}, {"status": "fail"}],
)
def test_a_check_has_all_its_points_or_none(change: dict[str, Any]) -> None:
    mark = Mark("mean", "a title", "pass", 3, 3)
    with pytest.raises(BadArgument):
        replace(mark, **change)


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
    book = results.read_all(out)
    assert dict(book.records) == {(new.student, exercise): new}
    assert book.refused == ()
    inside = [path.resolve() for path in out.rglob("*")]
    assert all(path.is_relative_to(out.resolve()) for path in inside)


@fuzz
@given(student_ids, student_ids)
def test_two_ids_never_share_a_folder_even_where_case_is_ignored(one: str, other: str) -> None:
    first, second = results.folder_name(one), results.folder_name(other)
    assert (first.casefold() == second.casefold()) == (
        results.tidy_id(one) == results.tidy_id(other)
    )
    assert first.isascii()
    assert "/" not in first
    assert not first.startswith(".")
    assert len(first) < 200


def test_ids_that_differ_in_case_or_composition() -> None:
    assert results.folder_name("Ann").casefold() != results.folder_name("ann").casefold()
    composed, parted = "Zoë", unicodedata.normalize("NFD", "Zoë")
    assert composed != parted
    assert results.folder_name(composed) == results.folder_name(parted)
    for name in ("..", ".", "/etc/passwd", "a/../b", "~root", "CON", "%2e%2e"):
        assert "/" not in results.folder_name(name)
        assert results.folder_name(name) not in ("", ".", "..")
    for name in ("", " ", "\ufeff", "a\nb", "\udc80"):
        with pytest.raises(BadArgument):
            results.folder_name(name)


def damaged(text: str) -> dict[str, str | bytes]:
    """A record's text → what may become of it."""
    data = json.loads(text)
    wrong = {
        "cut short": text[: len(text) // 2],
        "empty": "",
        "not UTF-8": text.encode().replace(b"ex02", b"ex\xff2"),
        "not an object": "[1]",
        "deep": "[" * 100_000,
        "huge": " " * (5 * 2**20) + text,
        "NaN": text.replace('"score": 4.0', '"score": NaN'),
        "infinite": text.replace('"score": 4.0', '"score": 1e999'),
        "twice": text.replace('"score": 4.0', '"score": 4.0, "score": 4.0'),
        "one letter": text.replace("bubblewrap", "bubblewarp"),
        "no seal": json.dumps({key: data[key] for key in data if key != "seal"}),
        "seal of none": json.dumps({**data, "seal": "0" * 64}),
        "seal that is no text": json.dumps({**data, "seal": 7}),
        "further field": json.dumps({**data, "bonus": 10}),
        "missing field": json.dumps({key: data[key] for key in data if key != "penalty"}),
        "other student": json.dumps({**data, "student": "s2"}),
        "more points": json.dumps({**data, "points": 99, "score": 99.0}),
        "attempt in a list": json.dumps({**data, "attempt": [1]}),
        "checks as text": json.dumps({**data, "checks": "all passed"}),
        "a check as text": json.dumps({**data, "checks": ["pass"]}),
        "status as object": json.dumps({**data, "status": {"pass": 1}}),
        "message of numbers": text.replace('"message": ""', '"message": 3', 1),
    }
    assert all(value != text for value in wrong.values())
    return wrong


def test_damaged_and_forged_records_are_refused_named_and_not_counted(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1"))
    results.write(tmp_path, record("s0"))
    path = results.record_path(tmp_path, "s1", "ex02")
    text = path.read_text()
    for what, wrong in damaged(text).items():
        path.write_bytes(wrong if isinstance(wrong, bytes) else wrong.encode())
        with pytest.raises(NoEvidence):
            results.read(tmp_path, "s1", "ex02")
        book = results.read_all(tmp_path)
        assert list(book.records) == [("s0", "ex02")], what
        assert [one.path for one in book.refused] == [path.relative_to(tmp_path)], what
        assert book.refused[0].reason, what
        assert results.refused_for(book, "s1", "ex02"), what
    path.write_text(text)
    assert results.read(tmp_path, "s1", "ex02")


def test_a_right_looking_forgery_lacks_the_seal(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1", statuses=["fail"]))
    path = results.record_path(tmp_path, "s1", "ex02")
    forged = asdict(record("s1"))
    seal = json.loads(path.read_text())["seal"]
    path.write_text(json.dumps({**forged, "seal": seal}))
    with pytest.raises(NoEvidence, match="seal"):
        results.read(tmp_path, "s1", "ex02")


JSON = st.recursive(
    st.sampled_from([None, True, False, 10**400])
    | st.integers()
    | st.floats()
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@fuzz
@given(st.data())
def test_any_value_in_a_record_is_refused_in_words_even_when_it_is_sealed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    out = tmp_path_factory.getbasetemp() / "any-value"
    shutil.rmtree(out, ignore_errors=True)
    right = record("s1", statuses=["pass", "fail"])
    results.write(out, right)
    key = (out / "seal.key").read_bytes()
    raw = json.loads(results.record_path(out, "s1", "ex02").read_text())
    del raw["seal"]
    place = data.draw(st.sampled_from([raw, raw["checks"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    seal = hmac.new(key, b"", hashlib.sha256).hexdigest()
    with contextlib.suppress(ValueError):  # a forger could not seal NaN
        seal = results._seal(raw, key)
    results.record_path(out, "s1", "ex02").write_text(json.dumps({**raw, "seal": seal}))
    try:
        found = results.read(out, "s1", "ex02")
    except NoEvidence as error:
        assert error.what
    else:
        assert found
        assert 0 <= found.score <= found.points <= found.max_points == right.max_points


@fuzz
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_refused_in_words(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    out = tmp_path_factory.getbasetemp() / "any-file"
    path = results.record_path(out, "s1", "ex02")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    book = results.read_all(out)
    assert not book.records
    assert [one.path.name for one in book.refused] == ["ex02.json"]
    (out / "roster.json").write_bytes(raw)
    with pytest.raises(NoEvidence, match="damaged"):
        roster.kept(out)


def test_a_sealed_record_counts_only_in_its_own_place(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1"))
    path = results.record_path(tmp_path, "s1", "ex02")
    for other in (
        results.record_path(tmp_path, "s2", "ex02"),
        results.record_path(tmp_path, "s1", "ex00"),
        tmp_path / "results" / "stray.json",
        path.parent / "notes.txt",
        path.parent / "ex02.1.json",
    ):
        other.parent.mkdir(exist_ok=True)
        other.write_text(path.read_text())
    os.symlink(path, results.record_path(tmp_path, "s1", "ex04"))
    os.mkfifo(results.record_path(tmp_path, "s1", "ex05"))
    os.symlink(path.parent, tmp_path / "results" / "s3")
    book = results.read_all(tmp_path)
    assert list(book.records) == [("s1", "ex02")]
    assert len(book.refused) == 8
    with pytest.raises(NoEvidence):
        results.read(tmp_path, "s2", "ex02")


def test_the_records_of_another_folder_are_refused(tmp_path: Path) -> None:
    results.write(tmp_path / "a", record("s1"))
    results.write(tmp_path / "b", record("s2"))
    theirs = results.record_path(tmp_path / "a", "s1", "ex02")
    ours = results.record_path(tmp_path / "b", "s1", "ex02")
    ours.parent.mkdir()
    ours.write_text(theirs.read_text())
    assert list(results.read_all(tmp_path / "b").records) == [("s2", "ex02")]


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoEvidence, match="grade DIR"):
        results.read_all(tmp_path / "nowhere")


def test_a_draft_left_by_a_power_cut_is_no_record(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1"))
    folder = results.record_path(tmp_path, "s1", "ex02").parent
    (folder / ".draft-00").write_text('{"version": 1, "stud')
    book = results.read_all(tmp_path)
    assert len(book.records) == 1
    assert book.refused == ()


def test_a_write_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write(tmp_path, record("s1", statuses=["fail"]))

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        results.write(tmp_path, record("s1"))
    monkeypatch.undo()
    old = results.read(tmp_path, "s1", "ex02")
    assert old
    assert old.status == "fail"
    assert not list(tmp_path.rglob(".draft*"))


def test_many_writers_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: results.write(tmp_path, record(f"s{n}")), range(16)))
    book = results.read_all(tmp_path)
    assert len(book.records) == 16
    assert book.refused == ()
    assert [path for path in tmp_path.rglob("*.*") if path.stat().st_mode & 0o007] == []


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


def test_nothing_is_written_where_lateness_stays(tmp_path: Path) -> None:
    assert results.judge_lateness(tmp_path, Student("s1"), "ex02", "", RULE) is None
    results.write(tmp_path, record("s1"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    found = results.judge_lateness(tmp_path, Student("s1"), "ex02", "", RULE)
    assert found == record("s1")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before


def test_a_key_that_is_no_file_seals_nothing(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1"))
    (tmp_path / "seal.key").unlink()
    os.mkfifo(tmp_path / "seal.key")
    book = results.read_all(tmp_path)
    assert dict(book.records) == {}
    assert len(book.refused) == 1
