"""Nothing in README.md or CONTRIBUTING.md that is not run, resolved or compared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT

from ddp_course.checks.exercises import EXERCISES

PAGES = ["README.md", "CONTRIBUTING.md"]

# Commands that another test runs, or the closest that can be run without the network.
PROVEN = {
    "make lab": "test_install.py: make lab runs tools/lab.py; test_lab.py: what that starts",
    "make test": "test_install.py: make test runs pytest",
    'make test ARGS="-k timeline"': "test_install.py: ARGS are passed on",
    "make check": ".ci/run",
    "make course": "test_install.py: make course runs tools/course.py; test_course.py",
    "make course ARGS=NN": "test_course.py: a selection",
    "git clone ADDRESS ddp-course && cd ddp-course": "git itself",
    "make nightly": "test_install.py: its two commands; test_endurance.py: forty launches",
    "make bench": "test_install.py: make bench runs tools/bench.py",
    "wsl --install": "Microsoft's documentation of WSL",
    "make notebooks": "test_notebooks_build.py",
    "make lab CPU=1": "test_install.py: CPU=1 asks uv for the CPU build",
    "make lab PYTHON=python3.12": "test_install.py: a named Python",
    "make test PYTHON=python3.11 TORCH=2.14.1": "test_install.py: another pair",
    "conda env create -f environment.yml": "test_environment.py validates the file",
    "conda activate ddp-course": "test_readme.py compares the name",
    "python tools/lab.py": "test_lab.py",
    ".venv/bin/python -m ddp_course run my_script.py --ranks 4": "test_main.py: any script",
    ".venv/bin/python -m ddp_course prepare mnist": "test_data.py, with a pretended network",
}
OURS = ".venv/bin/python -m ddp_course "


def commands(page: str) -> list[str]:
    """The commands of the page's shell blocks, and the `make …` in its sentences."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line] + re.findall(r"`(make \S[^`]*)`", text)


RUN = sorted(
    {command for page in PAGES for command in commands(page) if command.startswith(OURS)}
    - PROVEN.keys()
)


@pytest.mark.parametrize("document", PAGES)
def test_every_command_is_run(document: str) -> None:
    assert commands(document), "the page has commands"
    unknown = [command for command in commands(document) if command not in [*PROVEN, *RUN]]
    assert unknown == [], "no test runs these"


def test_every_block_is_a_shell_block() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
        assert set(fences[::2]) == {"sh"}


@pytest.mark.parametrize("command", RUN)
def test_our_own_commands_do_what_the_readme_says(command: str) -> None:
    words = command.removeprefix(OURS).split()
    ended = subprocess.run(
        [sys.executable, "-m", "ddp_course", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    wanted = 1 if words[0] == "check" else 0  # the exercise is still the stub
    assert ended.returncode == wanted, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("document", PAGES)
def test_links_and_pictures_resolve(document: str) -> None:
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link).is_file()] == []
    assert "![" not in text.replace("![The live", "").replace("![A time", ""), "alt text is there"


@pytest.mark.parametrize("document", PAGES)
def test_files_named_in_sentences_exist(document: str) -> None:
    names = re.findall(r"`([\w.]+/[\w./]*)`", (ROOT / document).read_text())
    made = (
        "build/",
        "runs/",
        "my_course/",
        "notebooks/NN",
        "notebooks/src/NN",
        "ddp_course/jobs/NN",
        ".venv/",
    )
    assert [n for n in names if not n.startswith(made) and not (ROOT / n).exists()] == []


def minutes(path: Path) -> tuple[str, str]:
    """A lesson's title and minutes, from its first cell."""
    first = nbformat.read(path, as_version=4).cells[0].source
    title = re.search(r"^# (.+)$", first, flags=re.MULTILINE)
    found = re.search(r"\| \*\*minutes\*\* \| (\d+) \|", first)
    assert title and found, f"{path.name} begins with its title and minutes"
    return title.group(1), found.group(1)


def lesson(path: Path) -> str:
    """A notebook's number: "02b"."""
    return path.name.partition("_")[0]


def exercise_minutes(lesson: str) -> int:
    """The minutes of a lesson's exercises."""
    return sum(one.minutes for one in EXERCISES.values() if one.lesson == lesson)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lesson)
def test_a_lesson_says_how_long_its_exercises_take(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0].source
    said = re.search(r"\| \*\*exercises?\*\* \| (?:(\d+) minutes more|none)", first)
    if said:
        assert int(said[1] or 0) == exercise_minutes(lesson(path))


def test_the_table_of_lessons_is_that_of_the_notebooks() -> None:
    text = (ROOT / "README.md").read_text()
    row = r"^\| \[(.+)\]\((notebooks/.+\.ipynb)\) \| \w[^|]+\. \| (\d+) \| (\d+|–) \|$"
    rows = re.findall(row, text, re.MULTILINE)
    wanted = [
        (title, str(path.relative_to(ROOT)), number, str(exercise_minutes(lesson(path)) or "–"))
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        for title, number in [minutes(path)]
    ]
    assert rows == wanted


def test_the_conda_name_is_that_of_the_file() -> None:
    assert "name: ddp-course\n" in (ROOT / "environment.yml").read_text()
