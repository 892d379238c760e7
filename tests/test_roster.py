"""Rosters as people and platforms write them; lateness by a stated policy."""

from __future__ import annotations

import argparse
import csv
import io
import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gradebook import DIFFICULT, fuzz, record, student_ids
from hypothesis import given
from hypothesis import strategies as st

from ddp_course.errors import BadArgument, NoEvidence
from ddp_grading import policy, results, roster, store
from ddp_grading.policy import Lateness, Policy
from ddp_grading.roster import Student, parse

NINE = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_spreadsheets_write(
    tmp_path: Path, separator: str, encoding: str, line_end: str
) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=separator, lineterminator=line_end)
    writer.writerow(["Student ID", "Name", "E-Mail", "Section", "Notes"])
    for number, name in enumerate(DIFFICULT):
        writer.writerow([f"s{number}", name, f"s{number}@example.org", "A, B", 'one\n"two"'])
        writer.writerow([])
    path = tmp_path / "roster.csv"
    path.write_bytes(buffer.getvalue().encode(encoding))
    students = roster.read(path)
    assert [one.name for one in students] == [unicodedata.normalize("NFC", n) for n in DIFFICULT]
    assert [one.id for one in students] == [f"s{n}" for n in range(len(DIFFICULT))]
    assert {one.section for one in students} == {"A, B"}


@pytest.mark.parametrize(
    "heading",
    ["id", "ID", "student id", "Student_ID", "SIS ID", "SIS User ID", "\ufeffid", " id ", "sid"],
)
def test_headings_that_mean_the_id(heading: str) -> None:
    assert parse(f"{heading},name\n7,Ada\n")[0].id == "7"


def test_a_gradebook_of_canvas_is_a_roster() -> None:
    students = parse(
        "Student,ID,SIS User ID,SIS Login ID,Section,ex02 (77)\n"
        ",,,,,Manual Posting\n"
        "    Points Possible,,,,,4.00\n"
        '"Lovelace, Ada",11,u1,ada,S1,\n'
        '"Student, Test",12,,,S1,\n'.replace(",,,,,Manual Posting\n", "")
    )
    assert [one.id for one in students] == ["11", "12"]
    assert students[0].also == ("u1", "ada")
    assert students[0].name == "Lovelace, Ada"


def test_a_file_that_names_its_separator() -> None:
    students = parse("sep=;\r\nid;name\r\n1;a,b\r\n2;c\r\n")
    assert [(one.id, one.name, one.line) for one in students] == [("1", "a,b", 3), ("2", "c", 4)]


def test_first_and_last_name_are_joined() -> None:
    one = parse("Surname;First name;ID number;Email address\nLovelace;Ada;7;a@b\n")[0]
    assert (one.id, one.name, one.email) == ("7", "Ada Lovelace", "a@b")


def test_ids_are_text_and_composed() -> None:
    parted = unicodedata.normalize("NFD", "Zoë")
    students = parse(f"id\n007\n 1e5 \n{parted}\n\u00a0b\u200b\n")
    assert [one.id for one in students] == ["007", "1e5", "Zoë", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column of student ids"),
        ("\n\n", "no column of student ids"),
        ("name,email\nAda,a@b\n", "no column of student ids"),
        ("Ada,7\n", "no column of student ids"),
        ("id,name\n", "names no students"),
        ("id,ID\n1,2\n", "'id' twice"),
        ("id,name\n1,A\n\n,B\n", "line 4: the row has no student id"),
        ("id,name\n1,A\n2,B\n1,C\n", "lines 2 and 4 have the same id '1'"),
        ("id,name\nZoë,A\nZoe\u0308,B\n", "lines 2 and 3 have the same id"),
        ("id,email\n1,A@b\n2,a@B\n", "lines 2 and 3 have the same email"),
        ('id,name\n1,"A\nB"\n1,C\n', "lines 2 and 4"),
        ('id,name\n1,"A\n2,B\n', "line 2: the row cannot be read"),
        ("id,name\n1,A,surplus\n", "line 2: the row has 3 cells"),
        ("id,name\n1,A\x07B\n", "line 2: the row holds control characters"),
        ("id,name\n1,A\0B\n", "line 2: NUL characters"),
        ("id,due\n1,tomorrow\n", "line 2: the row has 'tomorrow' as time due"),
        ("id,due\n1,2026-02-30\n", "line 2"),
        ("id,due\n1,2026-03-01 10:00 Nowhere/Else\n", "line 2"),
        ("id,submitted\n1,0001-01-01 00:00+14:00\n", "line 2"),
        ("id,attempts\n1,many\n", "line 2: the row has 'many' as attempts"),
        ("id,attempts\n1,-1\n", "line 2"),
        ("id,max attempts\n1,0\n", "line 2"),
        ("id\n" + "x" * 201 + "\n", "line 2: the row has an id of more than 200"),
    ],
)
def test_a_roster_that_cannot_be_right_is_refused_with_its_lines(text: str, said: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "What to do" in str(caught.value)


def test_a_duplicate_address_is_not_printed() -> None:
    with pytest.raises(BadArgument) as caught:
        parse("id,email\n1,ada@example.org\n2,ada@example.org\n")
    assert "@" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("id,name\n1,Müller\n".encode("latin-1"), "line 2: not UTF-8"),
        ("id\n1\n".encode("utf-16-le"), "NUL"),
        (b"\xff\xfei\0d\0\n", "not UTF-16"),
        (b"PK\x03\x04\0\0", "NUL"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "roster.csv"
    path.write_bytes(raw)
    with pytest.raises(BadArgument, match=said):
        roster.read(path)


def test_a_missing_roster_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(BadArgument, match="cannot be read"):
            roster.read(path)


@fuzz
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for prefix in ("", "id,name,due,attempts\n"):
        try:
            students = parse(prefix + text)
        except BadArgument as error:
            assert error.what
        else:
            assert len({one.id for one in students}) == len(students) > 0


@fuzz
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"id,name\n" + raw)
    try:
        roster.read(path)
    except BadArgument as error:
        assert error.what


@fuzz
@given(st.lists(student_ids, min_size=1, max_size=8, unique=True), st.sampled_from(",;\t"))
def test_every_id_comes_back(ids: list[str], separator: str) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "name"])
    writer.writerows([one, "somebody"] for one in ids)
    assert [one.id for one in parse(buffer.getvalue())] == ids


def moment(text: str, zone: str = "UTC", *, column: str = "due") -> datetime:
    one = parse(f"id,{column}\n1,{text}\n", zone=zone)[0]
    found = one.due if column == "due" else one.submitted
    assert found
    return found.astimezone(UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01 10:00+01:00",
        "2026-03-01T10:00:00+0100",
        "2026-03-01 10:00 +01:00",
        "2026-03-01 09:00:00 UTC",
        "2026-03-01T09:00Z",
        "2026-03-01 09:00:00.000 GMT",
        "2026-03-01 04:00 America/New_York",
    ],
)
def test_times_with_a_zone(text: str) -> None:
    assert moment(text, "Asia/Tokyo") == NINE
    assert parse(f"id,due\n1,{text}\n", zone="Asia/Tokyo")[0].assumed == ()


def test_times_without_a_zone_take_the_given_one_and_say_so() -> None:
    assert moment("2026-03-01 10:00", "Europe/Berlin") == NINE
    one = parse("id,due\n1,2026-03-01 10:00\n", zone="Europe/Berlin")[0]
    assert one.assumed == ("times without a zone: Europe/Berlin",)
    with pytest.raises(BadArgument, match="no time zone"):
        parse("id\n1\n", zone="Mars/Olympus")


def test_utc_needs_no_table_of_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise roster.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(roster, "ZoneInfo", none)
    assert moment("2026-03-01 09:00") == NINE
    with pytest.raises(BadArgument, match="install tzdata"):
        moment("2026-03-01 09:00", "Europe/Berlin")


def test_a_day_alone_is_its_end_when_due_and_its_beginning_when_submitted() -> None:
    assert moment("2026-03-01") == datetime(2026, 3, 2, tzinfo=UTC)
    assert moment("2026-03-01", column="submitted") == datetime(2026, 3, 1, tzinfo=UTC)


def test_where_the_clock_changes_zoneinfo_is_believed() -> None:
    """On 2026-10-25 Berlin has 02:30 twice; on 2026-03-29 it has none."""
    zone = "Europe/Berlin"
    assert moment("2026-10-25 02:30", zone) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert moment("2026-03-29 02:30", zone) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert moment("2026-10-25", zone) == datetime(2026, 10, 25, 23, 0, tzinfo=UTC)


def test_the_kept_roster_comes_back(tmp_path: Path) -> None:
    students = [
        Student(f"s{n}", name, f"s{n}@b", due=NINE, also=("a",)) for n, name in enumerate(DIFFICULT)
    ]
    results.write(tmp_path, record("s1"))
    assert roster.kept(tmp_path) is None
    roster.keep(tmp_path, students[:3])
    roster.keep(tmp_path, students)
    assert roster.kept(tmp_path) == students
    for wrong in ("", "[]", "{}", '{"id": "s1", "due": "tomorrow"}'):
        with closing(sqlite3.connect(tmp_path / store.NAME)) as db, db:
            db.execute("UPDATE student SET data = ? WHERE id = 's1'", [wrong])
        with pytest.raises(NoEvidence, match="damaged"):
            roster.kept(tmp_path)


def student(hours_late: float, **more: Any) -> Student:
    return Student("1", due=NINE, submitted=NINE + timedelta(hours=hours_late), **more)


def test_lateness_costs_for_each_day_begun() -> None:
    rule = policy.make(late="10% per day, at most 35%", grace="10 minutes")
    cases = {
        -5.0: 0.0,
        0.0: 0.0,
        1 / 6: 0.0,
        0.17: 0.1,
        24.0: 0.1,
        24.01: 0.2,
        72.0: 0.3,
        73.0: 0.35,
        5000.0: 0.35,
    }
    assert {hours: rule.lateness(student(hours)).penalty for hours in cases} == cases
    found = rule.lateness(student(25))
    assert found.late_s == 25 * 3600
    assert found.note == "1 day 1 h late: −20 %"


def test_a_change_of_clocks_neither_gives_nor_takes() -> None:
    """The last Sunday of October has 25 hours, that of March 23; a day here is 24 real hours."""
    rule = policy.make(late="10% per day")
    for due, handed_in, penalty in (
        ("2026-10-24 12:00", "2026-10-25 11:00", 0.1),
        ("2026-10-24 12:00", "2026-10-25 11:01", 0.2),
        ("2026-03-28 12:00", "2026-03-29 13:00", 0.1),
    ):
        text = f"id,due,submitted\n1,{due},{handed_in}\n"
        assert rule.lateness(parse(text, zone="Europe/Berlin")[0]).penalty == penalty


def test_after_the_last_deadline_nothing_counts() -> None:
    for closes in ("2 days", "2026-03-03 09:00+00:00", "2026-03-03 09:00"):
        rule = policy.make(late="10% per day", closes=closes)
        assert rule.lateness(student(48)).penalty == 0.2
        late = rule.lateness(student(48.1))
        assert late.penalty == 1.0
        assert "last deadline" in late.note


def test_attempts_beyond_the_maximum_do_not_count() -> None:
    rule = policy.make(max_attempts=2)
    assert rule.lateness(student(0), attempt=2) == Lateness()
    assert rule.lateness(student(0), attempt=3).penalty == 1.0
    assert rule.lateness(student(0, attempts=3), attempt=1).penalty == 1.0
    assert rule.lateness(student(0, max_attempts=3), attempt=3) == Lateness()


def test_without_both_times_nobody_is_late() -> None:
    rule = policy.make(late="50% per hour")
    for one in (Student("1"), Student("1", due=NINE), Student("1", submitted=NINE)):
        assert rule.lateness(one) == Lateness()


@pytest.mark.parametrize(
    "words",
    [
        {"late": "10%"},
        {"late": "ten per day"},
        {"late": "-10% per day"},
        {"late": "200% per day"},
        {"late": "10% per day, at most 101%"},
        {"late": 10},
        {"grace": "soon"},
        {"grace": "10 lightyears"},
        {"closes": "never"},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": "3"},
        {"counts": "mean"},
        {"zone": "Nowhere"},
        {"zone": 3},
        {"lat": "10% per day"},
    ],
)
def test_a_policy_that_is_not_understood_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        policy.make(**words)


def test_a_policy_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        'late = "10% per day, at most 50%"\ngrace = "1 hour 30 minutes"\ncloses = "1 week"\n'
        'max_attempts = 5\ncounts = "best"\nzone = "Europe/Berlin"\n'
    )
    found = policy.read(path)
    assert found == Policy(
        rate=0.1,
        most=0.5,
        grace_s=5400.0,
        closes_s=604800.0,
        max_attempts=5,
        counts="best",
        zone="Europe/Berlin",
    )
    path.write_text("late = ")
    with pytest.raises(BadArgument, match="cannot be read"):
        policy.read(path)


def test_a_flag_goes_before_the_policy_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('late = "10% per day"\nmax_attempts = 5\n')
    parser = argparse.ArgumentParser()
    policy.add_flags(parser)
    given = parser.parse_args(["--policy", str(path), "--late", "20% per day", "--counts", "best"])
    assert policy.from_flags(given) == Policy(rate=0.2, max_attempts=5, counts="best")
    assert policy.from_flags(parser.parse_args([])) == Policy()
    assert "--late" in parser.format_help()


@fuzz
@given(
    st.floats(-1e4, 1e4),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_a_penalty_is_a_share_that_never_falls_with_time(
    hours: float, rate: int, most: int, attempt: int, grace: int
) -> None:
    rule = policy.make(late=f"{rate}% per hour, at most {most}%", grace=f"{grace} hours")
    found = rule.lateness(student(hours), attempt)
    later = rule.lateness(student(hours + 1), attempt)
    assert 0 <= found.penalty <= most / 100 <= 1
    assert found.penalty <= later.penalty
    assert bool(found.note) == bool(found.late_s)
    assert rule.lateness(replace(student(hours), attempts=attempt)) == found
