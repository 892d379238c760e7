"""Whose a submission is and what is read of it: honest layouts, and all that is not honest."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.files import not_yet
from ddp_course.errors import BadArgument
from ddp_grading import answers
from ddp_grading.answers import Collected
from ddp_grading.roster import parse
from ddp_grading.submissions import find

ANSWER = "def sum_over_ranks(number):\n    return number\n"
EX00 = "ex00_sum_over_ranks.py"
STUDENTS = parse(
    "id,name,email,login\n"
    "s1,Ada Lovelace,ada@x.org,alove\n"
    "s10,Bob Ray,bob@x.org,\n"
    "Ünal/3,Şule Ünal,,\n"
    "2041,Eve O'Neil,eve@x.org,eoneil\n"
    "2042,Zoë Ray,zoe@x.org,\n"
    "7,,,\n"
)


def archive(files: Mapping[str, bytes | str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as into:
        for name, text in files.items():
            into.writestr(name, text)
    return data.getvalue()


def notebook(*cells: str) -> str:
    listed = [{"cell_type": "code", "source": cell, "metadata": {}} for cell in cells]
    return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def read(tmp_path: Path, *paths: Path) -> Collected:
    into = tmp_path / "collected"
    into.mkdir(exist_ok=True)
    return answers.collect(list(paths), into)


def graded(tmp_path: Path, collected: Collected, exercise: str = "ex00") -> str:
    return (tmp_path / "collected" / collected.answers[exercise].file).read_text()


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("s1", "s1"),
        ("S1", "s1"),
        ("s10", "s10"),
        ("s10.zip", "s10"),
        ("hw3-s1", "s1"),
        ("ada@x.org", "s1"),
        ("alove", "s1"),
        ("exercises-alove", "s1"),
        ("Ada Lovelace_1234567_assignsubmission_file_", "s1"),
        ("lovelaceada_LATE_99_12345_ex00_sum_over_ranks.py", "s1"),
        ("oneil_2041_77_ex00.py", "2041"),
        ("Zoe\u0308 Ray_5_assignsubmission_file_", "2042"),
        ("%C3%9Cnal%2F3~8b7a9d3e", ""),
        ("Şule Ünal", "Ünal/3"),
        ("s11", ""),
        ("xs1", ""),
        ("Ray", ""),
        ("s1 and s10", ""),
        ("nobody.zip", ""),
        ("Eve Smith_123", ""),
        ("7", "7"),
        ("hw-7", ""),
        ("Ada Lovelace_2041", ""),
        ("Ada Lovelace_s1", "s1"),
    ],
)
def test_an_entry_belongs_to_whom_its_name_says(tmp_path: Path, name: str, student: str) -> None:
    path = tmp_path / name
    path.write_text("") if path.suffix in (".py", ".zip") else path.mkdir()
    found = find(tmp_path, STUDENTS)
    if student:
        assert found.entries == {student: [path]}
    else:
        assert found.entries == {} and [one for one, _ in found.strangers] == [path]


def test_the_name_of_a_results_folder_is_understood(tmp_path: Path) -> None:
    from ddp_grading.store import folder_name

    (tmp_path / folder_name("Ünal/3")).mkdir()
    assert list(find(tmp_path, STUDENTS).entries) == ["Ünal/3"]


def test_several_entries_of_one_student_and_none_of_another(tmp_path: Path) -> None:
    for name in ("s1_ex00_sum_over_ranks.py", "s1_ex02_average_gradients-1.py"):
        (tmp_path / name).write_text(ANSWER)
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "notes.txt").write_text("")
    found = find(tmp_path, STUDENTS)
    assert found.strangers == []
    collected = read(tmp_path, *found.entries["s1"])
    assert sorted(collected.answers) == ["ex00", "ex02"]


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="cannot be read"):
        find(tmp_path / "none", STUDENTS)


@pytest.mark.parametrize(
    ("name", "exercise"),
    [
        (EX00, "ex00"),
        ("doejane_5_6_ex00_sum_over_ranks-2.py", "ex00"),
        ("my-ex00.py", "ex00"),
        ("EX03b_final.py", "ex03b"),
        ("ex03_weight_batches.py", "ex03"),
        ("ex000.py", ""),
        ("ex0.py", ""),
        ("ex00 and ex01.py", ""),
        ("notes.py", ""),
        ("ex00_sum_over_ranks.txt", ""),
    ],
)
def test_a_file_is_the_answer_that_its_name_says(tmp_path: Path, name: str, exercise: str) -> None:
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / name).write_text(ANSWER)
    assert list(read(tmp_path, tmp_path / "s1").answers) == [exercise] * bool(exercise)


def test_the_surest_and_shallowest_file_is_graded_and_the_other_named(tmp_path: Path) -> None:
    deep = tmp_path / "s1" / "old"
    deep.mkdir(parents=True)
    (deep / EX00).write_text("old = 1\n" + ANSWER)
    (tmp_path / "s1" / EX00).write_text(ANSWER)
    (tmp_path / "s1" / "ex00_copy.py").write_text("copy = 1\n" + ANSWER)
    collected = read(tmp_path, tmp_path / "s1")
    assert graded(tmp_path, collected) == ANSWER
    assert any("ex00_sum_over_ranks.py is graded, not" in note for note in collected.notes)


@pytest.mark.parametrize("inside", ["", "nested/folder/"])
def test_an_archive_is_read_like_a_folder(tmp_path: Path, inside: str) -> None:
    (tmp_path / "s1.zip").write_bytes(
        archive({inside + EX00: ANSWER, "__MACOSX/._" + EX00: b"\0", "data.bin": b"x" * 9})
    )
    collected = read(tmp_path, tmp_path / "s1.zip")
    assert (graded(tmp_path, collected), collected.notes) == (ANSWER, [])


def test_hashes_tell_files_apart_and_are_those_of_what_is_graded(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / EX00).write_text(ANSWER)
    first = read(tmp_path, tmp_path / "s1").answers["ex00"].sha256
    (tmp_path / "s1" / EX00).write_text(ANSWER + "\n")
    assert read(tmp_path, tmp_path / "s1").answers["ex00"].sha256 != first
    (tmp_path / "s1.zip").write_bytes(archive({EX00: ANSWER}))
    assert read(tmp_path, tmp_path / "s1.zip").answers["ex00"].sha256 == first


@pytest.mark.parametrize(
    "cells",
    [
        [f"%%job {EX00[:-3]}\n{ANSWER}"],
        [f"%%writefile exercises/{EX00}\n{ANSWER}"],
        ["%%job ex00\nold = 1", f"%%job ex00\n{ANSWER}"],
    ],
)
def test_a_magic_cell_is_the_whole_file(tmp_path: Path, cells: list[str]) -> None:
    (tmp_path / "s1.ipynb").write_text(notebook("import torch", *cells, "check('ex00')"))
    collected = read(tmp_path, tmp_path / "s1.ipynb")
    assert graded(tmp_path, collected) == ANSWER


def test_a_cell_that_defines_the_function_follows_the_stub_and_the_imports(tmp_path: Path) -> None:
    cells = [
        "import math\nx = math.pi",
        "def sum_over_ranks(number):\n    return 1",
        "%matplotlib inline\n!ls\ndef sum_over_ranks(number):\n    return math.floor(number)",
        "this is no Python",
    ]
    (tmp_path / "s1.ipynb").write_text(notebook(*cells))
    collected = read(tmp_path, tmp_path / "s1.ipynb")
    text = graded(tmp_path, collected)
    assert text.rstrip().endswith("return math.floor(number)")
    assert "import math" in text and "__main__" not in text and "return 1" not in text
    path = tmp_path / "collected" / collected.answers["ex00"].file
    assert not_yet(path, "sum_over_ranks") == ""
    compile(text, "x.py", "exec")


def test_a_cell_that_python_cannot_read_is_still_that_students_answer(tmp_path: Path) -> None:
    (tmp_path / "s1.ipynb").write_text(notebook("def sum_over_ranks(number):\n    return ("))
    collected = read(tmp_path, tmp_path / "s1.ipynb")
    path = tmp_path / "collected" / collected.answers["ex00"].file
    assert "Python cannot read" in not_yet(path, "sum_over_ranks") or not_yet(path, "x")


def test_lines_that_only_a_notebook_knows_do_not_spoil_a_cell(tmp_path: Path) -> None:
    lines = ["%time 1 + 1", "!ls", "files = !ls", "here = %pwd", "?print", "sum_over_ranks??"]
    cell = "\n".join(["def sum_over_ranks(number):", "    return 2  # enough?", *lines])
    (tmp_path / "hw.ipynb").write_text(notebook(cell))
    text = graded(tmp_path, read(tmp_path, tmp_path / "hw.ipynb"))
    compile(text, "hw", "exec")
    assert text.rstrip().endswith("return 2  # enough?")


def test_a_cell_that_python_can_read_is_left_as_it_is(tmp_path: Path) -> None:
    cell = 'def sum_over_ranks(number):\n    return ("%s"\n    % number)'
    (tmp_path / "hw.ipynb").write_text(notebook(cell))
    assert cell in graded(tmp_path, read(tmp_path, tmp_path / "hw.ipynb"))


def test_a_file_that_is_not_named_like_an_exercise_is_said(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "homework.py").write_text("def sum_over_ranks(number):\n    return 1\n")
    (tmp_path / "in" / "helper.py").write_text("def other():\n    return sum_over_ranks\n")
    (tmp_path / "in" / "ｅｘ０２.py").write_text("wide = 1\n")
    collected = read(tmp_path, tmp_path / "in")
    assert list(collected.answers) == ["ex02"]
    (note,) = collected.notes
    assert "homework.py is not graded" in note and "ex00_sum_over_ranks.py" in note


def test_of_two_members_of_one_name_the_last_is_taken(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as into, pytest.warns(UserWarning, match="Duplicate"):
        for text in ("first = 1", "last = 2"):
            into.writestr("ex00_sum_over_ranks.py", text)
    (tmp_path / "hw.zip").write_bytes(data.getvalue())
    collected = read(tmp_path, tmp_path / "hw.zip")
    assert graded(tmp_path, collected) == "last = 2"
    assert "twice" in collected.notes[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [{}]}', "[" * 9999])
def test_a_broken_notebook_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "s1.ipynb").write_text(text)
    collected = read(tmp_path, tmp_path / "s1.ipynb")
    assert collected.answers == {}
    assert "no notebook that can be read" in collected.notes[0]


def test_links_devices_and_pipes_are_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("SECRET\n" + ANSWER)
    folder = tmp_path / "s1"
    folder.mkdir()
    (folder / EX00).symlink_to(secret)
    (folder / "away").symlink_to("/", target_is_directory=True)
    os.mkfifo(folder / "ex02_average_gradients.py")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(folder)
        listener.bind("ex03_weight_batches.py")
        os.chdir("/")
        collected = read(tmp_path, folder)
    assert collected.answers == {}
    said = " ".join(collected.notes)
    assert f"{EX00} is a link" in said and "away is a link" in said
    assert "ex02_average_gradients.py is no regular file" in said
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "s10").symlink_to(tmp_path)
    assert find(tmp_path / "class", STUDENTS).strangers[0][1] == "it is a link"


def test_what_changes_python_is_dropped_and_what_shadows_a_module_is_named(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "s1"
    (folder / "__pycache__").mkdir(parents=True)
    names = ("sitecustomize.py", "conftest.py", "x.pth", "torch.py", "random.py")
    for name in (*names, "__pycache__/ex02_average_gradients.py", EX00):
        (folder / name).write_text(ANSWER)
    collected = read(tmp_path, folder)
    assert list(collected.answers) == ["ex00"]
    assert os.listdir(tmp_path / "collected") == [EX00]
    said = " ".join(collected.notes)
    for name in ("sitecustomize.py", "conftest.py", "x.pth"):
        assert f"{name} would change how Python starts" in said
    assert "torch.py has the name of the module torch" in said and "random.py has" in said


def linked(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def test_an_archive_cannot_write_elsewhere_or_be_a_link(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as into:
        into.writestr("../../" + EX00, ANSWER)
        into.writestr("/etc/ex02_average_gradients.py", ANSWER)
        into.writestr("..\\ex03_weight_batches.py", ANSWER)
        into.writestr(linked("ex04_resume_exactly.py"), "/etc/passwd")
        into.writestr("inner.zip", archive({"ex05_hand_over.py": ANSWER}))
    (tmp_path / "s1.zip").write_bytes(data.getvalue())
    before = set(tmp_path.rglob("*"))
    collected = read(tmp_path, tmp_path / "s1.zip")
    assert collected.answers == {}
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "collected"}
    said = " ".join(collected.notes)
    assert said.count("points out of the archive") == 3
    assert "is a link or a device" in said and "an archive in an archive" in said


def test_a_bomb_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "s1.zip").write_bytes(archive({EX00: b"#" * (1 << 24)}))
    collected = read(tmp_path, tmp_path / "s1.zip")
    assert collected.answers == {} and "too large" in collected.notes[0]


def test_a_bomb_that_lies_about_its_size_is_left_out(tmp_path: Path) -> None:
    data = bytearray(archive({EX00: b"#" * (1 << 24)}))
    size = (1 << 24).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = (100).to_bytes(4, "little")
    (tmp_path / "s1.zip").write_bytes(bytes(data))
    assert read(tmp_path, tmp_path / "s1.zip").answers == {}


def test_too_many_files_and_too_many_bytes_end_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_FILES", 50)
    (tmp_path / "s1.zip").write_bytes(archive({f"{n}.txt": "" for n in range(60)}))
    assert "more than 50 files" in read(tmp_path, tmp_path / "s1.zip").notes[0]
    monkeypatch.setattr(answers, "MOST_FILES", 5000)
    monkeypatch.setattr(answers, "MOST_READ", 1000)
    folder = tmp_path / "s10"
    folder.mkdir()
    for n in range(20):
        (folder / f"a{n}.py").write_text("#" * 100)
    (folder / "ex02_average_gradients.py").write_text(ANSWER)
    collected = read(tmp_path, folder)
    assert "what came after was not read" in collected.notes[0]
    assert len(collected.notes) <= 20


def test_a_tree_without_end_ends(tmp_path: Path) -> None:
    deep = tmp_path / "s1"
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    assert "folders deeper than" in read(tmp_path, tmp_path / "s1").notes[0]


DAMAGED = [b"", b"PK\x03\x04", b"not a zip", archive({"a": "b"})[:-30]]


@pytest.mark.parametrize("data", DAMAGED, ids=["empty", "begun", "text", "cut"])
def test_a_damaged_archive_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "s1.zip").write_bytes(data)
    assert "no archive that can be read" in read(tmp_path, tmp_path / "s1.zip").notes[0]


def test_a_damaged_member_does_not_stop_the_others(tmp_path: Path) -> None:
    data = bytearray(archive({EX00: ANSWER * 50, "ex02_average_gradients.py": ANSWER}))
    data[60] ^= 0xFF  # in the first member's compressed bytes
    (tmp_path / "s1.zip").write_bytes(bytes(data))
    collected = read(tmp_path, tmp_path / "s1.zip")
    assert "ex02" in collected.answers
    assert any("cannot be unpacked" in note for note in collected.notes)


def test_names_and_contents_that_are_no_text_are_survived(tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    folder.mkdir()
    os.mkdir(os.fsencode(folder) + b"/\xff\xfe")
    with open(os.fsencode(folder) + b"/\xff\xfe/ex00_sum_over_ranks.py", "wb") as file:
        file.write(b"\xff\xfe\0")
    (folder / "ex02_\x1b[31maverage_gradients.py").write_text(ANSWER)
    collected = read(tmp_path, folder)
    assert "ex00" in collected.answers
    assert all("\x1b" not in note for note in collected.notes)


def test_every_exercise_can_be_told_by_its_short_name() -> None:
    for one in EXERCISES.values():
        assert answers._named(one.stem) == (one.name, 0)
        assert answers._named(f"my {one.name}") == (one.name, 2)


_LINES = st.sampled_from([
    "def sum_over_ranks(number):", "def train(", "    return number", "import os", "x = (((", "'''",
    "\\", "# ex06", "# TODO: write from here …", "    # … to here", "%%job a", "!ls", "@property",
    "class A:", "if True:", "def sum_over_ranks(*, a=1, **b): pass", "\0", "\ud800", "\f", "\r",
])  # fmt: skip
_TEXTS = st.one_of(st.text(), st.lists(_LINES).map("\n".join))
_CELLS = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", 3, None]),
        "source": st.one_of(_TEXTS, st.lists(_TEXTS), st.none(), st.integers()),
        "metadata": st.one_of(st.none(), st.dictionaries(st.text(), st.integers())),
    },
)
_NOTEBOOKS = st.one_of(
    st.fixed_dictionaries({"cells": st.one_of(st.lists(_CELLS), st.none(), st.text())}),
    st.recursive(st.one_of(st.none(), st.floats(), st.text()), lambda of: st.lists(of)),
).map(lambda one: json.dumps(one).encode())
_BYTES = st.one_of(
    st.binary(), _TEXTS.map(lambda one: one.encode(errors="surrogatepass")), _NOTEBOOKS
)
_NAMES = st.one_of(
    st.sampled_from(
        [EX00, "ex00.ipynb", "../ex00.py", "a/ex06.py", "/ex00.py", "ex00.zip", "x.py"]
    ),
    st.text(min_size=1, max_size=20),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from([EX00, "ex00.ipynb", "all.zip"]), _BYTES, st.dictionaries(_NAMES, _BYTES))
def test_whatever_is_handed_in_is_an_answer_or_a_note(
    name: str, data: bytes, inside: dict[str, bytes]
) -> None:
    if inside and name.endswith(".zip"):
        with warnings.catch_warnings(), suppress(ValueError, OverflowError, IndexError):
            warnings.simplefilter("ignore")  # of names that come twice
            data = archive(inside)
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "into")
        into.mkdir()
        Path(folder, name).write_bytes(data)
        collected = answers.collect([Path(folder, name)], into)
        assert {path.name for path in Path(folder).iterdir()} == {"into", name}
        assert {one.file for one in collected.answers.values()} == set(os.listdir(into))
        json.dumps([collected.notes, *(vars(one) for one in collected.answers.values())])
