"""tools/course.py: pages with outputs, and a failing cell that is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import tool

GOOD = """# %% [markdown]
# # A good lesson

# %%
import os; print("headless", os.environ["DDP_COURSE_HEADLESS"], os.path.basename(os.getcwd()))

# %% tags=["raises-exception"]
predict = print
raise ValueError("this one is meant to fail")

# %%
guess = predict("reached the end")
"""
BAD = """# %% [markdown]
# # A bad lesson

# %%
print("fine")

# %%
{}["missing"]

# %%
print("never reached")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build = tool("build_notebooks").build
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "00_good.ipynb").write_text(build(GOOD))
    (folder / "01_bad.ipynb").write_text(build(BAD))
    return folder


def run(folder: Path, *lessons: str) -> int:
    out = folder.parent / "out"
    code = tool("course").main([*lessons, "--notebooks", str(folder), "--out", str(out)])
    assert isinstance(code, int)
    return code


def test_pages_hold_outputs_and_the_failing_cell_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder) == 1
    said = capsys.readouterr().out
    assert "00_good … ok" in said
    assert """01_bad … FAILED in cell 3 ({}["missing"]): KeyError: 'missing'""" in said
    good = (folder.parent / "out" / "00_good.html").read_text()
    assert "headless 1 notebooks" in good
    assert "this one is meant to fail" in good
    assert good.count("reached the end") == 1, "a prediction's input is hidden"
    index = (folder.parent / "out" / "index.html").read_text()
    assert '<a href="00_good.html">A good lesson</a>' in index
    assert "FAILED in cell 3" in index
    assert not list(folder.glob("*.html")), "the notebooks' own folder stays clean"


def test_a_selection_that_passes_exits_0(folder: Path) -> None:
    assert run(folder, "00") == 0
    assert not (folder.parent / "out" / "01_bad.html").exists()


def test_a_selection_of_nothing_is_an_error(folder: Path) -> None:
    assert run(folder, "77") == 1
