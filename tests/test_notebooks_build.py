"""The committed notebooks are what their sources build, the same byte for byte each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from conftest import ROOT, tool

SOURCE = """# %% [markdown]
# # How many ranks?

# %% editable=true tags=["raises-exception"]
1 / 0

# %%
print("again")

# %%
print("again")

# %%
guess = predict("How many?", choices=[1, 2])

# %%
# %%job my_job
print("a rank")
"""


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    return tool("build_notebooks")


def test_the_committed_notebooks_are_what_their_sources_build(builder: ModuleType) -> None:
    assert builder.out_of_date() == [], "to build them: make notebooks"
    assert builder.expected(), "there are notebooks"


def test_make_notebooks_changes_nothing() -> None:
    command = [sys.executable, "tools/build_notebooks.py", "--check"]
    assert subprocess.run(command, cwd=ROOT).returncode == 0


def test_building_twice_gives_the_same_bytes(builder: ModuleType) -> None:
    assert builder.build(SOURCE) == builder.build(SOURCE)


def test_a_notebook_has_a_kernel_stable_ids_tags_and_no_outputs(builder: ModuleType) -> None:
    notebook = nbformat.reads(builder.build(SOURCE), as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.cells[0].source == "# How many ranks?"
    assert notebook.cells[1].metadata == {"tags": ["raises-exception"]}
    hidden = {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}
    assert notebook.cells[-2].metadata == hidden, "a prediction's question stands once"
    assert notebook.cells[-1].source.startswith("%%job my_job\n")
    for cell in notebook.cells[1:]:
        assert cell.outputs == []
        assert cell.execution_count is None


def test_a_cell_keeps_its_id_when_another_changes(builder: ModuleType) -> None:
    before = nbformat.reads(builder.build(SOURCE), as_version=4)
    after = nbformat.reads(builder.build(SOURCE.replace("1 / 0", "2 / 0")), as_version=4)
    same = [old.id == new.id for old, new in zip(before.cells, after.cells, strict=True)]
    assert same == [True, False, True, True, True, True]


def test_out_of_date_and_stray_notebooks_are_named(builder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "00_a.py").write_text(SOURCE)
    assert builder.out_of_date(tmp_path) == ["00_a.ipynb is not what src/00_a.py builds"]
    (tmp_path / "00_a.ipynb").write_text(builder.build(SOURCE))
    assert builder.out_of_date(tmp_path) == []
    (tmp_path / "99_b.ipynb").write_text("{}")
    assert builder.out_of_date(tmp_path) == ["99_b.ipynb has no source in src/"]
