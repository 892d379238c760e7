"""Exports, loaded as strictly as the programs that read them do."""

from __future__ import annotations

import base64
import codecs
import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import junit10
import pytest
from conftest import ROOT
from gradebook import (
    DIFFICULT,
    NAMES,
    STATUSES,
    any_text,
    fuzz,
    make_class,
    record,
    student_ids,
)
from hypothesis import given
from hypothesis import strategies as st

from ddp_course.errors import BadArgument
from ddp_grading import exports, report, results, roster, store, templates
from ddp_grading.__main__ import main
from ddp_grading.report import Book, Row, gather
from ddp_grading.roster import Student

ADDRESS = re.compile(r"[\w.+-]+@\w+\.\w+")


def strict_json(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def read_csv(text: str) -> list[dict[str, Any]]:
    rows = list(
        csv.reader(
            io.StringIO(text, newline=""),
            strict=True,
            quoting=csv.QUOTE_NONNUMERIC,
            doublequote=True,
        )
    )
    head: list[Any] = rows[0]
    assert len(set(head)) == len(head)
    assert {len(row) for row in rows} == {len(head)}
    return [dict(zip(head, row, strict=True)) for row in rows[1:]]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("graded")
    make_class(out)
    return out


@pytest.fixture(scope="module")
def book(graded: Path) -> Book:
    return gather(graded)


@st.composite
def books(draw: st.DrawFn) -> Book:
    """Any class whose records can be built."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    points = {name: sum(results.manifest(name).values()) for name in names}
    rows = []
    for student in draw(st.lists(student_ids, min_size=1, max_size=4, unique=True)):
        found, states = {}, {}
        for name in names:
            states[name] = draw(st.sampled_from(["graded", "missing", "refused"]))
            if states[name] == "graded":
                found[name] = record(
                    student,
                    name,
                    draw(st.lists(st.sampled_from(STATUSES), min_size=1)),
                    message=draw(any_text),
                    mistake=draw(any_text),
                    note=draw(any_text),
                    sandbox=draw(st.sampled_from(["bubblewrap 0.8.0", "none (unsafe)"])),
                    penalty=draw(st.sampled_from([0.0, 0.1, 1 / 3, 1.0])),
                )
                states[name] = found[name].status
                if states[name] == "ungradable":
                    states[name] = "missing"  # the record names no file
        rows.append(Row(Student(student, draw(any_text), draw(any_text)), found, states))
    return Book(tuple(rows), points, results.exercises())


def test_csv_of_the_class(book: Book) -> None:
    rows = read_csv(exports.as_csv(book))
    assert [row["id"] for row in rows] == ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "S8"]
    by_id = {row["id"]: row for row in rows}
    assert by_id["s1"]["score"] == by_id["s1"]["max_score"] == book.max_score
    assert by_id["s1"]["email"] == "ada@example.org"
    assert by_id["s3"]["name"] == "'=cmd|' /C calc'!A0"
    assert (by_id["s3"]["ex02 score"], by_id["s3"]["ex02 penalty"]) == (3.2, 0.2)
    assert by_id["s3"]["ex02 note"] == "1 day 1 h late: −20 %"
    assert by_id["s4"]["ex02 status"] == "timeout"
    assert (by_id["s5"]["ex02 score"], by_id["s5"]["ex02 status"]) == (0, "ungradable")
    assert (by_id["s6"]["ex02 score"], by_id["s6"]["score"]) == ("", "")
    assert by_id["s6"]["state"] == "infra"
    assert by_id["s7"]["state"] == "missing"
    assert by_id["S8"]["ex02 score"] == ""
    assert by_id["S8"]["state"] == "refused"
    assert {row["sandbox"] for row in rows} == {"bubblewrap 0.8.0", ""}


def test_the_note_says_why_points_are_missing(book: Book) -> None:
    by_id = {row["id"]: row for row in read_csv(exports.as_csv(book))}
    assert by_id["s1"]["ex02 note"] == ""
    assert by_id["s2"]["ex00 note"].endswith(": ask ada@… (it looks like: a sum)"), "a lost point"
    assert by_id["s3"]["ex02 note"] == "1 day 1 h late: −20 %"
    assert by_id["s5"]["ex02 note"] == "no Python"
    assert by_id["s6"]["ex02 note"] == "the sandbox did not start", "our fault"
    assert by_id["s7"]["ex02 note"] == "not submitted"
    assert by_id["S8"]["ex02 note"] == "must be graded again"
    both = record("s1", statuses=["fail"], penalty=0.1, note="1 h late: −10 %", mistake="a sum")
    row = Row(Student("s1"), {"ex02": both}, {"ex02": "fail"})
    note = read_csv(exports.as_csv(Book((row,), {"ex02": 4}, {"ex02": "t"})))[0]["ex02 note"]
    assert note.startswith("1 h late: −10 %; ") and "it looks like: a sum" in note


@fuzz
@given(books())
def test_any_class_as_csv(made: Book) -> None:
    text = exports.as_csv(made)
    text.encode("utf-8", "surrogatepass")
    rows = read_csv(text)
    assert len(rows) == len(made.rows)
    for row, was in zip(rows, made.rows, strict=True):
        assert row["id"].removeprefix("'") in (was.student.id, was.student.id.removeprefix("'"))
        for cell in row.values():
            assert not isinstance(cell, str) or not cell.startswith(tuple("=+-@\t\r\n＝＋－＠"))
        assert (row["score"] == "") == (was.open or was.absent)
        for name, state in was.states.items():
            assert (row[f"{name} score"] == "") == (state in ("missing", "infra", "refused"))


@fuzz
@given(books())
def test_any_class_as_json(made: Book) -> None:
    data = strict_json(exports.as_json(made))
    assert [one["id"] for one in data["students"]] == [row.student.id for row in made.rows]
    for one, was in zip(data["students"], made.rows, strict=True):
        assert {part["exercise"]: part["status"] for part in one["results"]} == was.states
        assert (one["score"] is None) == (was.open or was.absent)
        for part in one["results"]:
            never = part["status"] in ("missing", "infra", "refused")
            assert (part["score"] is None) == never


@fuzz
@given(books())
def test_any_class_as_junit(made: Book) -> None:
    root = junit10.check(exports.as_junit(made))
    suites = root.findall("testsuite")
    assert len(suites) == len(made.rows)
    for suite, row in zip(suites, made.rows, strict=True):
        red = suite.find(".//failure") is not None or suite.find(".//error") is not None
        assert red == (set(row.states.values()) != {"pass"})


def test_junit_of_the_class(book: Book) -> None:
    root = junit10.check(exports.as_junit(book))
    kinds = {
        suite.get("name"): sorted({fault.get("type") for case in suite for fault in case} - {None})
        for suite in root
    }
    assert kinds["s1"] == []
    assert kinds["s4"] == ["missing", "timeout"]
    assert kinds["s5"] == ["missing", "ungradable"]
    assert kinds["s6"] == ["infra"]
    assert kinds["s7"] == ["missing"]
    assert kinds["S8"] == ["missing", "refused"]


def test_junit_marks_only_what_was_not_passed() -> None:
    for statuses, kinds in (
        (["pass", "blocked"], [None, "failure"]),
        (["fail", "blocked"], ["failure", "skipped"]),
    ):
        one = record("s1", statuses=statuses)
        row = Row(Student("s1"), {"ex02": one}, {"ex02": one.status})
        root = junit10.check(exports.as_junit(Book((row,), {"ex02": 4}, {"ex02": "t"})))
        cases = root.findall("./testsuite/testcase")
        assert [case[0].tag if len(case) else None for case in cases] == kinds


def test_junit_checker_refuses_what_the_schema_refuses() -> None:
    good = '<testsuite name="a" tests="1" failures="0" errors="0"><testcase name="t"/></testsuite>'
    junit10.check(good)
    for wrong in (
        good.replace(' errors="0"', ""),
        good.replace("/></", ' colour="red"/></'),
        good.replace("<testcase", "text<testcase"),
        good.replace('tests="1"', 'tests="2"'),
        f"<testsuites><testcase name='t'/>{good}</testsuites>",
    ):
        with pytest.raises((AssertionError, KeyError)):
            junit10.check(wrong)


TOP = {
    "score": (int, float),
    "execution_time": (int, float),
    "output": str,
    "output_format": str,
    "test_output_format": str,
    "test_name_format": str,
    "visibility": str,
    "stdout_visibility": str,
    "extra_data": dict,
    "tests": list,
    "leaderboard": list,
}
TEST = {
    "score": (int, float),
    "max_score": (int, float),
    "status": str,
    "name": str,
    "name_format": str,
    "number": str,
    "output": str,
    "output_format": str,
    "tags": list,
    "visibility": str,
    "extra_data": dict,
}
VISIBLE = ("hidden", "after_due_date", "after_published", "visible")


def check_gradescope(text: str) -> dict[str, Any]:
    """As Gradescope's documentation has it: these fields, of these types, and no others."""
    data = strict_json(text)
    for fields, one in ((TOP, data), *((TEST, test) for test in data["tests"])):
        for key, value in one.items():
            assert isinstance(value, fields[key]), key
            assert not isinstance(value, bool)
        assert one.get("visibility", "visible") in VISIBLE
        assert one.get("score", 0) >= 0
    assert data.get("stdout_visibility", "hidden") in VISIBLE
    for test in data["tests"]:
        assert test["status"] in ("passed", "failed")
        assert test.get("score", 0) <= test.get("max_score", 0)
        assert ("score" in test) == ("max_score" in test) == ("score" in data)
    return dict(data)


@fuzz
@given(books())
def test_any_student_for_gradescope(made: Book) -> None:
    for row in made.rows:
        data = check_gradescope(exports.as_gradescope(row))
        graded = not row.open and bool(row.records)
        assert ("score" in data) == graded, "no score for what must be graded again"
        if graded:
            assert data["score"] == row.score
        assert len(data["tests"]) >= len(row.states)


def check_github(text: str) -> dict[str, Any]:
    data = strict_json(base64.b64decode(base64.b64encode(text.encode())).decode())
    assert set(data) == {"version", "status", "max_score", "tests"}
    assert data["version"] == 1
    assert data["status"] in ("pass", "fail", "error")
    assert data["tests"], "the reporter divides by their number"
    for test in data["tests"]:
        assert test["status"] in ("pass", "fail", "error")
        assert test["score"] >= 0
        assert isinstance(test["name"], str)
        assert isinstance(test["message"], str)
    assert (data["status"] == "pass") == all(test["status"] == "pass" for test in data["tests"])
    return dict(data)


@fuzz
@given(books())
def test_any_student_for_github(made: Book) -> None:
    for row in made.rows:
        data = check_github(exports.as_github(row))
        total = round(sum(test["score"] for test in data["tests"]), 2)
        if row.open or not row.records:
            assert (data["max_score"], total, data["status"]) == (0, 0, "error")
        else:
            assert (data["max_score"], total) == (row.max_score, row.score)


def test_without_a_record_there_is_a_file_and_no_score() -> None:
    row = Row(Student("s1"), {}, {})
    data = check_gradescope(exports.as_gradescope(row))
    assert "score" not in data
    assert "graded again" in data["output"]
    assert check_github(exports.as_github(row))["status"] == "error"


CANVAS = (
    'Student,ID,SIS User ID,SIS Login ID,Section,"ex02: Average, by hand (4711)",ex00 Sum (4712),'
    "Current Score\r\n"
    ",,,,,Manual Posting,,\r\n"
    "    Points Possible,,,,,4.00,3.00,(read only)\r\n"
    '"Lovelace, Ada",901,s1,ada,"A, B",,2.00,\r\n'
    '"O\'Brien, ""Annie""",902,s2,annie@EXAMPLE.org,A,1.5,,\r\n'
    "=Carl,903,S3,carl,B,,,12.5\r\n"
    '"علي, محمد",904,,mohammed@example.org,B,,,\r\n'
    "Bold,905,s5,bold,B,,N/A,\r\n"
    "Six,906,s6,six,B,3.25,,\r\n"
    "Seven,907,s7,seven,B,,,\r\n"
    'Eight,908,S8,"eight",B,"",,\r\n'
    "Stranger,999,x9,x9,B,4.00,,\r\n"
    '"Student, Test",910,,7f3a,B,,,\r\n'
)


def lines(data: bytes, start: str) -> list[str]:
    text = data.decode("utf-8-sig")
    return next(
        row for row in csv.reader(io.StringIO(text, newline="")) if row[0].startswith(start)
    )


def ex00(book: Book) -> int:
    return book.points["ex00"]


@pytest.fixture
def canvas(tmp_path: Path, book: Book) -> Path:
    path = tmp_path / "canvas.csv"
    text = CANVAS.replace("3.00,(read", f"{ex00(book)}.00,(read")
    path.write_bytes(codecs.BOM_UTF8 + text.encode())
    return path


def test_canvas_is_filled_and_nothing_else_changes(book: Book, canvas: Path) -> None:
    filled = templates.fill(book, canvas, "canvas")
    before, after = canvas.read_bytes(), filled.data
    assert after.startswith(codecs.BOM_UTF8)
    old, new = before.split(b"\r\n"), after.split(b"\r\n")
    assert len(old) == len(new)
    assert new[:3] == old[:3], "heading, posting row and points, byte for byte"
    for start in ("Seven", "Stranger", "Student"):
        assert [one for one in new if one.startswith(start.encode())] == [
            one for one in old if one.startswith(start.encode())
        ]
    assert new[3] == f'"Lovelace, Ada",901,s1,ada,"A, B",4.00,{ex00(book)}.00,'.encode()
    assert lines(after, "O'Brien")[5:7] == ["3.00", "0.00"]
    assert lines(after, "=Carl")[5:] == ["3.20", "", "12.5"], "S3 and s3 are one person here"
    assert lines(after, "علي")[5] == "0.00"
    assert lines(after, "Bold")[5:7] == ["0.00", "N/A"]
    assert lines(after, "Six")[5:7] == ["3.25", f"{ex00(book)}.00"], "infra keeps what was there"
    assert lines(after, "Eight")[5] == "", "a refused record gives no score"
    said = "\n".join(filled.left_out)
    assert "Stranger: in the file, not in the roster" in said
    assert "Student, Test: in the file" in said
    assert "s6 Our Fault: ex02 could not be graded" in said
    assert "S8 Forger: ex02 must be graded again" in said
    assert "s7 Nobody Here: ex02 not submitted" in said


def test_a_gradebook_of_canvas_serves_as_roster_and_as_template(tmp_path: Path) -> None:
    path = tmp_path / "gradebook.csv"
    path.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,ex02 (1)\n    Points Possible,,,,,4\n"
        '"Lovelace, Ada",11,u1,ada,S1,\n"Bo, B",12,11,bo,S1,\n"C, Cy",13,u3,cy,S1,\n'
    )
    students = roster.read(path)
    for one in students:
        results.write(tmp_path, record(one.id, statuses=["pass" if one.id == "11" else "fail"]))
    filled = templates.fill(gather(tmp_path, students), path, "canvas")
    lines = filled.data.decode().splitlines()
    assert lines[2] == '"Lovelace, Ada",11,u1,ada,S1,4.00'
    assert lines[3] == '"Bo, B",12,11,bo,S1,0.00', "11 is one's number and another's SIS id"
    assert lines[4].endswith(",0.00")


def test_canvas_by_the_assignments_number(book: Book, canvas: Path) -> None:
    filled = templates.fill(book, canvas, "canvas", {"total": "4711"}, scale=True)
    assert lines(filled.data, "Lovelace")[5:7] == ["4.00", "2.00"]
    wanted = round(4 * 3.2 / book.max_score, 2)
    assert float(lines(filled.data, "=Carl")[5]) == pytest.approx(wanted, abs=0.006)
    assert lines(filled.data, "Six")[5] == "3.25"


@pytest.mark.parametrize(
    ("assign", "said"),
    [
        ({"total": "4711"}, "4.00 points where the course has"),
        ({"ex02": "9999"}, "no column '9999'"),
        ({"ex05": "4711"}, "no results of 'ex05'"),
        ({"ex02": "Section"}, ""),
    ],
)
def test_canvas_says_what_does_not_fit(
    book: Book, canvas: Path, assign: dict[str, str], said: str
) -> None:
    if not said:
        templates.fill(book, canvas, "canvas", assign)
        return
    with pytest.raises(BadArgument, match=re.escape(said)):
        templates.fill(book, canvas, "canvas", assign)


def test_a_template_that_cannot_be_filled_is_refused(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "t.csv"
    for text, said in (
        ("", "names an exercise"),
        ('Student,ID,SIS User ID,"ex02 (1)\n', "quote that is not closed"),
        ('Student,SIS User ID,ex02 (1)\n"a"b,s1,\n', "closing quote"),
        ("Student,SIS User ID,Quiz (1)\nA,s1,\n", "names an exercise"),
        ("Student,SIS User ID,ex02 (1),ex02 (2)\nA,s1,,\n", "two columns"),
        ("Student,ex02 (1)\nA,\n", "no column of ids"),
        ("Student,SIS User ID,ex02 (1)\nA,nobody,\n", "Nobody in"),
    ):
        path.write_text(text)
        with pytest.raises(BadArgument, match=said):
            templates.fill(book, path, "canvas")
    path.write_bytes("Student,SIS User ID,ex02 (1)\nMüller,s1,\n".encode("latin-1"))
    with pytest.raises(BadArgument, match="not UTF-8"):
        templates.fill(book, path, "canvas")


def test_one_person_on_two_lines_is_filled_on_neither(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Student,SIS User ID,SIS Login ID,ex02 (1)\nA,s1,,\nB,,S1,\nC,s2,,\n")
    filled = templates.fill(book, path, "canvas")
    assert filled.data.decode().splitlines()[1:3] == ["A,s1,,", "B,,S1,"]
    assert any("on several lines" in line for line in filled.left_out)
    assert filled.filled == 1


MOODLE = (
    "Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade,"
    "Grade can be changed,Last modified (submission),Last modified (grade),Feedback comments\n"
    'Participant 1,"Ada",s1,other@x.org,"Submitted -  - ",,{most},Yes,-,-,"kept, as is"\n'
    'Participant 2,Annie,,annie@example.org,"No submission -  - ","1,0",{most},Yes,-,-,\n'
    "Participant 3,Carl,s3,,x,,{most},No,-,-,\n"
    'Participant 4,Six,s6,,x,"",{most},Yes,-,-,\n'
    "Participant 9,Stranger,zz,zz@example.org,x,,{most},Yes,-,-,"
)


def test_ids_that_differ_only_in_case_are_told_apart(tmp_path: Path) -> None:
    rows = tuple(
        Row(Student(name), {"ex02": record(name, statuses=[status])}, {"ex02": status})
        for name, status in (("ann", "pass"), ("Ann", "fail"))
    )
    path = tmp_path / "t.csv"
    path.write_text("Student,SIS User ID,ex02 (1)\nA,ann,\nB,Ann,\nC,ANN,\n")
    filled = templates.fill(Book(rows, {"ex02": 4}, {"ex02": "t"}), path, "canvas")
    assert filled.data.decode().splitlines()[1:] == ["A,ann,4.00", "B,Ann,0.00", "C,ANN,"]
    assert filled.left_out == ("C: in the file, not in the roster",)


def test_moodle_is_filled_with_its_own_decimal_mark(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "moodle.csv"
    path.write_text(MOODLE.format(most=f'"{book.max_score},00"'), newline="")
    filled = templates.fill(book, path, "moodle")
    old, new = (
        list(csv.reader(io.StringIO(text, newline="")))
        for text in (path.read_text(), filled.data.decode())
    )
    old[1][5], old[2][5] = f"{book.max_score},00", "3,00"
    assert new == old, "locked, to be graded again, and unknown: as they were"
    said = "\n".join(filled.left_out)
    for part in (
        "s3",
        "allows no score",
        "s6",
        "must be graded again",
        "s7",
        "Participant 9: in the",
    ):
        assert part in said


def test_moodle_in_utf16_with_semicolons(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "moodle.csv"
    text = f"Identifier;ID number;Grade;Maximum Grade\r\nParticipant 1;s1;;{book.max_score}\r\n"
    path.write_bytes(codecs.BOM_UTF16_LE + text.encode("utf-16-le"))
    filled = templates.fill(book, path, "moodle")
    wanted = text.replace(";;", f";{book.max_score}.00;")
    assert filled.data == codecs.BOM_UTF16_LE + wanted.encode("utf-16-le")


@fuzz
@given(st.text(st.sampled_from('ab,;"\n\r\t'), max_size=40))
def test_any_template_is_filled_or_refused_and_no_other_cell_changes(
    tmp_path_factory: pytest.TempPathFactory, tail: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text("Student,SIS User ID,ex02 (1)\nA,s1,\n" + tail, newline="")
    row = Row(Student("s1"), {"ex02": record("s1")}, {"ex02": "pass"})
    try:
        filled = templates.fill(Book((row,), {"ex02": 4}, {"ex02": "t"}), path, "canvas")
    except BadArgument:
        return
    before, after = (
        [row for row in csv.reader(io.StringIO(text, newline="")) if any(map(str.strip, row))]
        for text in (path.read_bytes().decode(), filled.data.decode())
    )
    before[1][2] = "4.00"
    assert [[*row, "", ""][:3] for row in after] == [[*row, "", ""][:3] for row in before]


def test_commands_write_each_format(
    graded: Path, canvas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, read in (("csv", read_csv), ("json", strict_json), ("junit", junit10.check)):
        assert main(["export", str(graded), name, "--to", str(tmp_path / name)]) == 3
        assert read((tmp_path / name).read_bytes().decode()) is not None
        assert "S8" in capsys.readouterr().err, "the refused record is named"
    code = main(
        ["export", str(graded), "canvas", "--template", str(canvas), "--to", str(tmp_path / "c")]
    )
    assert code == 3
    said = capsys.readouterr().err
    assert "not in the roster" in said
    assert not ADDRESS.search(said)
    for name, check in (("gradescope", check_gradescope), ("github", check_github)):
        assert main(["export", str(graded), name, "--to", str(tmp_path / name)]) == 3
        assert len(list((tmp_path / name).glob("*.json"))) == 8
        assert main(["export", str(graded), name, "--student", "s1"]) == 0
        assert check(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["csv", "--template", "x"], "takes no --template"),
        (["csv", "--zone", "Mars"], "no time zone 'Mars'"),
        (["canvas"], "needs --template"),
        (["csv", "--student", "s1"], "takes no --student"),
        (["junit", "--assign", "total=1"], "takes no --assign"),
        (["moodle", "--template", "nowhere.csv"], "cannot be read"),
        (["gradescope"], "one file for each of 8"),
        (["gradescope", "--to", "x.json"], "one file for each of 8"),
        (["github", "--student", "zz"], "no student 'zz'"),
        (["csv", "--roster", "nowhere.csv"], "cannot be read"),
        (["csv", "--to", "/dev/null/x"], "cannot be written"),
    ],
)
def test_commands_refuse_in_words(
    graded: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(graded), *words]) == 2
    assert said in capsys.readouterr().err


def test_the_template_is_never_overwritten(
    graded: Path, canvas: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(graded), "canvas", "--template", str(canvas), "--to", str(canvas)]
    assert main(words) == 2
    assert "overwrite" in capsys.readouterr().err


def test_a_roster_given_later_decides_who_is_exported(
    graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "roster.csv"
    path.write_text("id,name\ns2,Annie\nnew,Newcomer\n")
    assert main(["export", str(graded), "csv", "--roster", str(path)]) == 3
    shown = capsys.readouterr()
    assert [row["id"] for row in read_csv(shown.out)] == ["s2", "new"]
    assert "s1: has results, but is not in the roster" in shown.err


def test_output_goes_through_a_pipe_as_it_is(graded: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ddp_grading", "export", str(graded), "csv"],
        cwd=ROOT,
        env={"PATH": "/usr/bin", "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    assert len(read_csv(ended.stdout.decode("utf-8"))) == 8
    assert b"Traceback" not in ended.stderr


def test_difficult_names_are_in_every_export_once(tmp_path: Path) -> None:
    rows = tuple(
        Row(Student(name, name), {"ex02": record(name)}, {"ex02": "pass"})
        for name in map(store.tidy_id, DIFFICULT)
    )
    made = Book(rows, {"ex02": 4}, {"ex02": "t"})
    assert len(read_csv(exports.as_csv(made))) == len(rows)
    assert [one["name"] for one in strict_json(exports.as_json(made))["students"]] == [
        row.student.name for row in rows
    ]
    assert len(junit10.check(exports.as_junit(made)).findall("testsuite")) == len(rows)
    assert report.page(made).count("<details><summary>") == len(rows)
