"""%%job: a cell becomes a job, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_course import notebook
from ddp_course.errors import BadArgument
from ddp_course.launcher import catalogue


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_cell_is_saved_beside_the_notebook(here: Path) -> None:
    notebook.save_job("mine", "print('first')")
    assert (here / "mine.py").read_text() == "print('first')\n" + catalogue.FROM_CELL
    assert catalogue.find_job("mine") == here / "mine.py"


def test_a_cell_that_is_no_python_leaves_no_older_job_to_be_run(here: Path) -> None:
    notebook.save_job("mine", "print('OLD version')\n")
    with pytest.raises(BadArgument, match=r"line 1.*never closed"):
        notebook.save_job("mine", "print('NEW version'\n")
    with pytest.raises(BadArgument, match="There is no job 'mine'"):
        catalogue.find_job("mine")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("pass\0\n", "no Python: .*null bytes"),
        ("x = '\ud800'\n", "no Python: .*surrogates"),
        ("%matplotlib inline\npass\n", r"line 1: .*%magics and !commands are the notebook's"),
        ("pass\n  !ls\n", r"line 2: .*%magics and !commands are the notebook's"),
    ],
)
def test_a_cell_that_is_no_script_is_told_why(cell: str, said: str, here: Path) -> None:
    with pytest.raises(BadArgument, match=f"(?s){said}.*What to do"):
        notebook.save_job("mine", cell)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "two words",
        "queue",
        "torch",
        "hello_ranks",
        "../x",
        "9a",
        "__main__",
        "__init__",
        "x" * 99,
    ],
)
def test_a_name_that_would_hide_something_is_refused(name: str, here: Path) -> None:
    with pytest.raises(BadArgument, match="cannot be called"):
        notebook.save_job(name, "pass\n")
    assert not list(here.iterdir())


def test_a_file_that_no_cell_wrote_is_never_touched(here: Path) -> None:
    (here / "mine.py").write_text("precious\n")
    for cell in ("pass\n", "print('broken'\n"):
        with pytest.raises(BadArgument, match="no cell has written it"):
            notebook.save_job("mine", cell)
    assert (here / "mine.py").read_text() == "precious\n"
