"""What a lesson, a hint or a message tells the learner to type works where they read it."""

from __future__ import annotations

import ast
import os
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

import ddp_course

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = [
    *sorted((ROOT / "ddp_course").rglob("*.py")),
    *sorted((ROOT / "ddp_course").rglob("*.toml")),
]
CALL = re.compile(r"\b([a-z_]+)(\((?:[^()\n]|\([^()\n]*\))*\))")


def told(text: str) -> set[str]:
    """Calls of public names in a text that can be made as they stand: with constants only."""
    found = set()
    for name, rest in CALL.findall(text):
        if name not in ddp_course.__all__:
            continue
        try:
            call: Any = ast.parse(f"{name}{rest}", mode="eval").body
            values = [*call.args, *(word.value for word in call.keywords)]
            [ast.literal_eval(value) for value in values]
        except (SyntaxError, ValueError):
            continue
        found.add(f"{name}{rest}")
    return found


def test_no_public_name_is_one_of_ipython_s_magics() -> None:
    """`reset("ex00")` typed before the lesson's first cell would run %reset."""
    magics = InteractiveShell().magics_manager.magics
    assert not set(ddp_course.__all__) & {*magics["line"], *magics["cell"]}


@pytest.mark.timeout(280)
def test_what_texts_tell_one_to_type_runs_in_every_lesson(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that prose, hints and messages contain, after the import cell of the lesson."""
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path / "exercises"))
    said = {call for path in TEXTS for call in told("\n".join(strings(path)))}
    for path in LESSONS:
        cells = nbformat.read(path, as_version=4).cells
        said |= {call for c in cells if c.cell_type == "markdown" for call in told(c.source)}
    # A check is a run of its own, and each lesson makes its checks; jobs are launched there too.
    quick = sorted(call for call in said if not re.match(r"(check|launch|explore)\(", call))
    assert {'hint("ex00", more=True)', 'restore("ex00")', "progress()"} <= set(quick)
    for path in LESSONS:
        first = next(
            cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
        )
        source = [first.source, *quick, f"print({', '.join(ddp_course.__all__)})"]
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in source])
        client = NotebookClient(
            book,
            timeout=60,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute(env=dict(os.environ))  # any cell that raises, or asks, ends the test


def strings(path: Path) -> list[str]:
    """The texts of a module that are not docstrings, or all of a data file."""
    if path.suffix != ".py":
        return [path.read_text()]
    tree = ast.parse(path.read_bytes())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]
