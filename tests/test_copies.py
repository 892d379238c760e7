"""The learner's copies: what is theirs survives every update, and `git pull` never conflicts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from ddp_course import copies
from ddp_course.__main__ import main
from ddp_course.checks.exercises import exercise_file, find
from ddp_course.errors import CannotRun


def notebook(*cells: str, outputs: bool = False) -> str:
    made = [{"cell_type": "code", "source": [text], "outputs": [1] * outputs} for text in cells]
    return json.dumps({"cells": made, "nbformat": 4})


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small course, in whose folder lessons come and change."""
    root = tmp_path / "course"
    (root / "notebooks").mkdir(parents=True)
    (root / "exercises").mkdir()
    (root / "notebooks" / "00_a.ipynb").write_text(notebook("one"))
    (root / "notebooks" / "01_b.ipynb").write_text(notebook("one"))
    (root / "exercises" / "ex00_a.py").write_text("stub\n")
    monkeypatch.setattr(copies, "ROOT", root)
    return root


def test_what_the_learner_changed_stays_and_the_new_version_is_laid_beside(
    course: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    first = copies.lay_out(mine)
    assert sorted(first.added) == [
        "exercises/ex00_a.py",
        "notebooks/00_a.ipynb",
        "notebooks/01_b.ipynb",
    ]
    assert copies.lay_out(mine) == copies.Laid(mine, [], [], [])

    (mine / "exercises" / "ex00_a.py").write_text("my answer\n")
    (mine / "notebooks" / "00_a.ipynb").write_text(notebook("one", "my cell"))
    ran = notebook("one", outputs=True)
    (mine / "notebooks" / "01_b.ipynb").write_text(ran)
    for name in ("00_a", "01_b"):
        (course / "notebooks" / f"{name}.ipynb").write_text(notebook("one", "two"))
    (course / "notebooks" / "02_c.ipynb").write_text(notebook("three"))
    laid = copies.lay_out(mine)
    assert laid.added == ["notebooks/02_c.ipynb"]
    assert laid.updated == ["notebooks/01_b.ipynb"], "it was run, not changed"
    assert laid.beside == ["notebooks/00_a.new.ipynb"]
    assert "my cell" in (mine / "notebooks" / "00_a.ipynb").read_text()
    assert (mine / "notebooks" / "01_b.ipynb").read_text() == notebook("one", "two")
    assert [path.read_text() for path in (mine / ".backups").iterdir()] == [ran]
    assert (mine / "exercises" / "ex00_a.py").read_text() == "my answer\n"
    assert copies.lay_out(mine).beside == [], "said once"

    (course / "exercises" / "ex00_a.py").write_text("new stub\n")
    (mine / "notebooks" / "02_c.ipynb").unlink()
    laid = copies.lay_out(mine)
    assert (laid.added, laid.beside) == (["notebooks/02_c.ipynb"], ["exercises/ex00_a.new.py"])
    assert (mine / "exercises" / "ex00_a.py").read_text() == "my answer\n"


@pytest.mark.parametrize("record", [None, "", "[]", "{", '{"notebooks/00_a.ipynb": 3}'])
def test_a_lost_or_damaged_record_costs_nothing(
    course: Path, tmp_path: Path, record: str | None
) -> None:
    mine = tmp_path / "mine"
    copies.lay_out(mine)
    (mine / "exercises" / "ex00_a.py").write_text("my answer\n")
    kept = mine / ".ddp-course.json"
    kept.unlink() if record is None else kept.write_text(record)
    (course / "exercises" / "ex00_a.py").write_text("new stub\n")
    assert copies.lay_out(mine).beside == ["exercises/ex00_a.new.py"]
    assert (mine / "exercises" / "ex00_a.py").read_text() == "my answer\n"


def test_a_notebook_that_is_broken_is_the_learner_s(course: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    copies.lay_out(mine)
    (mine / "notebooks" / "00_a.ipynb").write_text("[" * 100_000)
    (course / "notebooks" / "00_a.ipynb").write_text(notebook("two"))
    assert copies.lay_out(mine).beside == ["notebooks/00_a.new.ipynb"]
    assert (mine / "notebooks" / "00_a.ipynb").read_text() == "[" * 100_000


def test_where_nothing_can_be_written_or_nothing_is_given(course: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotRun, match="start FOLDER"):
        copies.lay_out(tmp_path / "file" / "mine")
    (course / "notebooks").rename(tmp_path / "elsewhere")
    (course / "exercises").rename(tmp_path / "elsewhere too")
    with pytest.raises(CannotRun, match="clone the repository"):
        copies.lay_out(tmp_path / "mine")


def test_checks_take_the_answer_from_the_copies_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DDP_COURSE_EXERCISES", raising=False)
    monkeypatch.setattr(copies, "HOME", tmp_path / "none")
    assert exercise_file(find("ex00")).parent == ROOT / "exercises"
    assert main(["start", str(tmp_path / "mine")]) == 0
    assert "00_start_here.ipynb" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "mine" / "notebooks")  # as a lesson's kernel
    assert exercise_file(find("ex00")).parent == tmp_path / "mine" / "exercises"
    assert main(["update"]) == 0
    assert str(tmp_path / "mine") in capsys.readouterr().out


def test_git_does_not_see_the_copies() -> None:
    asked = ["git", "check-ignore", "-q", str(copies.HOME / "notebooks" / "00_start_here.ipynb")]
    assert subprocess.run(asked, cwd=ROOT, check=False).returncode == 0
