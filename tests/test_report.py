"""The report on a class: complete, harmless, and silent about addresses."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from gradebook import DIFFICULT, any_text, fuzz, make_class, record, student_ids
from hypothesis import given
from hypothesis import strategies as st

from ddp_grading import report, results, roster
from ddp_grading.__main__ import main
from ddp_grading.report import Book, Row, gather
from ddp_grading.roster import Student

ADDRESS = re.compile(r"[\w.+-]+@\w+\.\w+")
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Every tag that is opened is closed; nothing is fetched or run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object", "form")
        for name, _ in attributes:
            assert name in ("lang", "charset", "name", "content", "class", "scope", "title"), name
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("graded")
    make_class(out)
    return out


@pytest.fixture(scope="module")
def book(graded: Path) -> Book:
    return gather(graded)


def test_the_text_says_who_what_and_what_needs_a_hand(book: Book) -> None:
    text = report.text(book)
    for part in (
        "8 students, 7 submitted",
        "ex02: 1 day 1 h late: −20 %",
        "1  ex02      weights changed",
        "could not be graded",
        "s6 Our Fault, ex02: the sandbox did not start",
        "S8 ex02: its checks or their points are not those of ex02",
        "Not submitted (1)",
        "s7 Nobody Here",
        "halves up",
    ):
        assert part.lower() in text.lower(), part
    line = next(line for line in text.splitlines() if line.startswith("s3 "))
    assert "3.2 −20%" in line
    for student in ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "S8"):
        assert sum(line.startswith(f"{student} ") for line in text.splitlines()) >= 1


def test_statistics_leave_out_what_was_not_graded(book: Book) -> None:
    line = next(line for line in report.text(book).splitlines() if line.startswith("ex02 A"))
    # passed, graded, mean, median (of 4, 3, 3.2 and 0), of, nothing to grade, absent
    assert line.split()[-7:] == ["2", "4", "2.55", "3.1", "4", "1", "1"]


def test_what_does_not_fit_the_manifest_is_not_counted(book: Book) -> None:
    forger = next(row for row in book.rows if row.student.id == "S8")
    assert forger.records == {}
    assert forger.score == 0
    assert forger.states["ex02"] == "refused"
    assert not book.complete


def test_the_page_is_whole_harmless_and_without_addresses(book: Book) -> None:
    html = report.page(book)
    page = Page(html)
    words = " ".join(page.words)
    assert "<b>Bold</b>" in words
    assert "=cmd|' /C calc'!A0" in words
    assert "ask ada@…" in words
    assert not ADDRESS.search(html)
    assert not ADDRESS.search(report.text(book))
    for letter in "\x1b\x07\u202e":
        assert letter not in html
        assert letter not in report.text(book)
    assert "http" not in html.replace('HYPERLINK("http', "")
    assert html.count("<table ") == 4


def test_columns_align_whatever_people_are_called() -> None:
    """A terminal gives two columns to a wide letter and none to a combining mark."""
    names = ["Ada", "李小龍", "김민준", "Zoe\u0308", "ｗｉｄｅ", "محمد"]
    rows = tuple(
        Row(Student(f"s{n}", name), {"ex02": record(f"s{n}")}, {"ex02": "pass"})
        for n, name in enumerate(names)
    )
    table = report.text(Book(rows, {"ex02": 4}, {"ex02": "a title"})).split("\n\n")[1]
    width = {
        name: sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in name) for name in names
    }
    width["Zoe\u0308"] = 3
    for line, name in zip(table.splitlines()[1:], names, strict=True):
        before, after = line.split(name)
        assert (len(before), len(after) + width[name]) == (
            9,
            len("ｗｉｄｅ") * 2 + len("    4/4  ✓ 4"),
        )


def test_one_long_name_does_not_push_the_columns_out_of_sight() -> None:
    rows = tuple(
        Row(Student(student, name), {"ex02": record(student)}, {"ex02": "pass"})
        for student, name in (("s1", "Ada"), ("s2", "n" * 300))
    )
    made = Book(rows, {"ex02": 4}, {"ex02": "a title"})
    assert max(map(len, report.text(made).splitlines())) < 100
    assert "n" * 300 in report.page(made)


@fuzz
@given(st.lists(st.tuples(student_ids, any_text, any_text), min_size=1, max_size=4))
def test_any_text_is_shown_safely(people: list[tuple[str, str, str]]) -> None:
    rows = tuple(
        Row(
            Student(student, name),
            {"ex02": record(student, statuses=["fail"], message=said, mistake=said, note=said)},
            {"ex02": "fail"},
        )
        for student, name, said in people
    )
    made = Book(rows, {"ex02": 4}, {"ex02": "a title"})
    Page(report.page(made))
    for text in (report.page(made), report.text(made)):
        text.encode("utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_a_long_word_is_searched_for_addresses_in_no_time() -> None:
    """Each of these took minutes where a search goes back at every letter."""
    long = "a" * 2_000_000
    assert report.plain(long) == long
    assert report.plain(f"{long}@example.org") == f"{long}@…"
    assert report.plain("a@" * 100_000).startswith("a@")
    for text in ("to ada@example.org, now", "<ada.l+x@sub.example.org>", "É@exämple.org"):
        assert "ple" not in report.plain(text)


def test_an_unsafe_run_is_stamped_on_the_class(tmp_path: Path) -> None:
    results.write(tmp_path, record("s1", sandbox="none (unsafe)"))
    results.write(tmp_path, record("s2"))
    assert "NOT SANDBOXED: 1 of 2 results" in report.summary(tmp_path)
    assert "none (unsafe)" in report.page(gather(tmp_path))


def test_without_a_roster_there_is_whoever_has_a_record(tmp_path: Path) -> None:
    results.write(tmp_path, record("s2"))
    results.write(tmp_path, record("s1"))
    made = gather(tmp_path)
    assert [row.student.id for row in made.rows] == ["s1", "s2"]
    assert "(no roster)" in report.text(made)
    assert "Not submitted" not in report.text(made)
    assert made.complete


def test_assumed_zones_are_said(tmp_path: Path) -> None:
    results.write(tmp_path, record("1"))
    students = roster.parse("id,due\n1,2026-03-01 10:00\n", zone="Europe/Berlin")
    text = report.summary(tmp_path, students)
    assert "How times were read (1)\n  times without a zone: Europe/Berlin" in text
    students = roster.parse("id,due\n1,2026-03-01\n")
    said = "due 2026-03-01: until the end of that day, UTC"
    assert said in report.summary(tmp_path, students)
    assert said in report.page(gather(tmp_path, students))


def test_an_id_that_is_an_address_is_shortened(tmp_path: Path) -> None:
    results.write(tmp_path, record("ada@example.org"))
    for text in (report.summary(tmp_path), report.page(gather(tmp_path))):
        assert "ada@…" in text
        assert "example" not in text


def test_the_command(graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(graded), "--html", str(page)]) == 3
    shown = capsys.readouterr()
    assert f"The page: {page}" in shown.out
    Page(page.read_text(encoding="utf-8"))
    results.write(tmp_path / "good", record("s1"))
    assert main(["report", str(tmp_path / "good")]) == 0
    assert (tmp_path / "good" / "report.html").is_file()
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "What to do" in capsys.readouterr().err


def test_a_class_of_300(tmp_path: Path) -> None:
    """All of them are shown once, whatever they are called."""
    rows = tuple(
        Row(
            Student(f"s{n}", DIFFICULT[n % len(DIFFICULT)]),
            {"ex02": record(f"s{n}")},
            {"ex02": "pass"},
        )
        for n in range(300)
    )
    made = Book(rows, {"ex02": 4}, {"ex02": "a title"})
    assert Page(report.page(made)).tags.count("details") == 300
    assert len(report.text(made).splitlines()) < 330
