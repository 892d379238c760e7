"""Every lesson runs to the bottom, as given and with the solutions, and its cells stay small."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ddp_course.checks.judge import EXERCISES
from ddp_course.launcher import catalogue

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "notebooks" / "src").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


class Client(NotebookClient):
    """A notebook and its kernel, which takes further cells."""

    def run(self, source: str) -> Any:
        """Execute one more cell at the end, and return it with its outputs."""
        cell = nbformat.v4.new_code_cell(source)
        self.nb.cells.append(cell)
        return self.execute_cell(cell, len(self.nb.cells) - 1)


def code_cells(path: Path) -> list[Any]:
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def prose(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(c.source for c in cells if c.cell_type == "markdown")


def is_job_cell(source: str) -> bool:
    return source.startswith("%%job ")


@LESSONS
def test_cells_hold_no_logic(path: Path) -> None:
    for cell in code_cells(path):
        if is_job_cell(cell.source):
            continue
        for node in ast.walk(ast.parse(cell.source)):  # also refuses `!ls` and `%magic`
            assert not isinstance(
                node,
                ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.For
                | ast.While | ast.If | ast.Try | ast.With | ast.ListComp | ast.SetComp
                | ast.DictComp | ast.GeneratorExp,
            ), f"logic in a cell: {cell.source}"  # fmt: skip
        statements = ast.parse(cell.source).body
        assert len(statements) <= 4, cell.source
        assert cell.outputs == [] and cell.execution_count is None


@LESSONS
def test_cells_use_public_names_only(path: Path) -> None:
    allowed = {"ddp_course", "numpy", "time"}
    for cell in code_cells(path):
        if is_job_cell(cell.source):
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Import):
                assert {name.name for name in node.names} <= allowed
            if isinstance(node, ast.ImportFrom):
                assert node.module in allowed
            assert not (isinstance(node, ast.Attribute) and node.attr.startswith("_"))


@LESSONS
def test_a_lesson_says_what_it_is(path: Path) -> None:
    text = prose(path)
    first = text.split("\n## ")[0]
    for word in ("| **do** |", "| **learn** |", "| **need** |", "| **minutes** |"):
        assert word in first, f"the first screen lacks {word}"
    looks = "doctor()" if path.stem == "00_start_here" else "doctor(short=True)"
    assert any(cell.source == looks for cell in code_cells(path)[:2])
    for wanted in ("## What would have gone wrong?", "**On your cluster.**", "**Sources.**"):
        assert wanted in text
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert all(heading.endswith("?") for heading in headings), headings
    assert "(glossary.md)" in text


@LESSONS
def test_a_lesson_ends_with_what_to_remember(path: Path) -> None:
    text = prose(path)
    found = re.search(
        r"## What should you remember\?\n(.+?)\n> \*\*On your cluster", text, re.DOTALL
    )
    assert found and len(re.findall(r"^- ", found[1], re.MULTILINE)) == 3
    assert re.search(r"^\*\*From memory:\*\* [^#]+\?\s*$", found[1], re.MULTILINE)
    assert "$" not in text, "a formula that a page without a network cannot draw"


@LESSONS
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", prose(path)):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_no_two_lessons_write_the_same_file() -> None:
    """A learner goes through all of them in one folder."""
    written = [
        name.removesuffix(".py")
        for path in NOTEBOOKS
        for cell in code_cells(path)
        for name in re.findall(r'^%%job (\w+)|copy_job\("\w+", "(.+?)"\)|write_page\(\s*"(.+?)"',
                               cell.source, re.MULTILINE)
        for name in filter(None, name)
    ]  # fmt: skip
    assert len(written) > 8 and sorted(set(written)) == sorted(written)


def test_each_lesson_ends_with_the_next() -> None:
    last_lines = [prose(path).splitlines()[-1] for path in NOTEBOOKS]
    titles = [prose(path).splitlines()[0].removeprefix("# ") for path in NOTEBOOKS]
    wanted = [
        f"**Next:** [{title}]({path.name})"
        for title, path in zip(titles[1:], NOTEBOOKS[1:], strict=True)
    ]
    assert last_lines == [*wanted, "This is the last lesson for now."]


@LESSONS
def test_every_prediction_is_revealed(path: Path) -> None:
    sources = [cell.source for cell in code_cells(path)]
    asked = [i for i, s in enumerate(sources) if "guess = predict(" in s]
    revealed = [i for i, s in enumerate(sources) if "guess.reveal(" in s]
    assert len(asked) == len(revealed)
    assert all(a < r for a, r in zip(asked, revealed, strict=True))
    assert all(r < a for r, a in zip(revealed, asked[1:], strict=False))


@LESSONS
def test_a_run_is_disturbed_in_the_cell_that_launches_it(path: Path) -> None:
    """Who runs cell by cell takes seconds to the next one, and by then the run may have ended."""
    for cell in code_cells(path):
        if is_job_cell(cell.source):
            continue
        tree = ast.parse(cell.source)
        launched = {
            ast.unparse(node.targets[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and "launch(" in ast.unparse(node.value)
        }
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for said in (ast.unparse(function) for function in called):
            if re.search(r"\.(pause|resume|kill|lose_node|return_node)$", said):
                assert re.split(r"[.(]", said)[0] in launched, cell.source


@LESSONS
def test_what_explores_is_shown(path: Path) -> None:
    for cell in code_cells(path):
        if "explore(" in cell.source:
            last = ast.parse(cell.source).body[-1]
            assert isinstance(last, ast.Expr), f"its sliders are not shown: {cell.source}"
            assert "explore(" in ast.unparse(last)


def test_every_job_is_in_a_lesson() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    for job in catalogue.names():
        assert f'"{job}"' in text, f"no lesson uses {job}"


def text_of(cell: Any) -> str:
    """Everything that a cell showed, printed or displayed, as text."""
    parts = []
    for output in cell.outputs:
        assert output.output_type != "error", "\n".join(output.traceback)
        parts.append(output.get("text", ""))
        parts += [str(value) for kind, value in output.get("data", {}).items() if "text" in kind]
    return "\n".join(parts)


@pytest.fixture
def executed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A lesson that has run to its bottom in a copy, so that no cell's job lands in the sources.

    Its kernel still lives. A cell that raises ends the test.
    """
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "exercises")
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns("*.py", "src"))
    client = Client(
        nbformat.read(path, as_version=4),
        timeout=250,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    with client.setup_kernel(env=dict(os.environ)):
        for index, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, index)
        yield client


@pytest.mark.timeout(900)
@LESSONS
def test_run_all(path: Path, executed: Client) -> None:
    """As given every verdict is "not yet"; with the solutions in their place it is "passed"."""
    cells = [cell for cell in executed.nb.cells if cell.cell_type == "code"]
    for cell in cells:
        said = text_of(cell)
        if "guess.reveal(" in cell.source:
            assert "this run" in said, f"{cell.source}\n{said}"
        survived = "--max-restarts=" in said  # what torchrun started again is shown too
        assert "Traceback" not in said or survived or "FAILED" in said or "First failure" in said, (
            said
        )
    verdicts = [cell for cell in cells if cell.source.startswith("check(")]
    assert verdicts or any(is_job_cell(cell.source) for cell in cells), "the learner writes code"
    assert_verdicts(verdicts, "not yet")
    executed.run("import os; os.environ['DDP_COURSE_EXERCISES'] = 'solutions'")
    assert_verdicts([executed.run(cell.source) for cell in verdicts], "passed")


def assert_verdicts(cells: list[Any], word: str) -> None:
    for cell in cells:
        name = ast.literal_eval(cell.source.removeprefix("check"))
        assert f"{name} {EXERCISES[name].title}: {word}," in text_of(cell)


def test_the_notebooks_are_json_without_outputs() -> None:
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell.get("outputs") for cell in cells)
