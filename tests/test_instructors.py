"""The instructor's guide: its commands, run in order, and what it states, compared."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, needs
from test_exports import ADDRESS, check_github
from test_readme import exercise_minutes, lesson, minutes

GUIDE = (ROOT / "docs" / "instructors.md").read_text()
PYTHON = ".venv/bin/python "
ENDS = {"check": 1, "grade": 1, "regrade": 1}  # a stub is among them; all others end with 0


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("    # ")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, so that what the guide makes lands there."""
    folder = tmp_path_factory.mktemp("guide")
    for name in ("docs", "exercises", "solutions", "wrappers"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    if line.startswith(PYTHON):
        line = f"{shlex.quote(sys.executable)} {line.removeprefix(PYTHON)}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env={**os.environ, "GIT_DIR": str(ROOT / ".git"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@needs("bwrap")
@pytest.mark.timeout(1200)
def test_every_command_in_order(place: Path) -> None:
    said = ""
    for line in commands():
        if line.endswith((" check", " doctor")):
            continue  # the README's too: test_readme.py; test_exercises.py checks them all
        if line.startswith("git ") and not (ROOT / ".git").exists():
            continue  # the course without its history, which makes no archive
        ended = run(line, place)
        words = line.partition("-m ddp_")[2].split()[1:] or [""]
        assert ended.returncode == ENDS.get(words[0], 0), f"{line}\n{ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr
        said += ended.stdout + ended.stderr
        if words[:3] == ["export", "build/class/out", "github"]:
            assert check_github(ended.stdout)["status"] == "pass"
    _check_results(place / "build" / "class")
    if (ROOT / ".git").exists():
        _check_archive(place / "build" / "autograder.zip")
    assert not ADDRESS.search(said)
    _check_privacy(place / "build" / "class")


def _check_results(folder: Path) -> None:
    scores = {
        one["id"]: one for one in json.loads((folder / "scores.json").read_text())["students"]
    }
    top = scores["s1"]["max_score"]
    late = round(0.9 * top, 2)  # nine hours: one day begun
    assert scores["s1"]["score"] == late
    assert scores["s1"]["results"][0]["penalty"] == 0.1
    assert scores["s2"]["score"] == 0
    canvas, moodle = (folder / "canvas.csv").read_text(), (folder / "moodle.csv").read_text()
    assert f'"Lovelace, Ada",901,s1,ada,A,{late:.2f}' in canvas
    assert f"李博,s2,bo@example.org,Submitted for grading,0.00,{top}.00,Yes" in moodle
    assert {path.name for path in (folder / "gradescope").iterdir()} == {"s1.json", "s2.json"}
    assert (folder / "out" / "report.html").is_file()


def _check_privacy(folder: Path) -> None:
    """Only the roster that is kept, and exports, hold an address."""
    holding = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and ADDRESS.search(path.read_text(errors="replace"))
    }
    given = {"roster.csv", "worksheet.csv"}
    assert holding == given | {"out/grades.db", "scores.csv", "scores.json", "moodle.csv"}


def _check_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in ("setup.sh", "run_autograder", "wrappers/grade_one.sh", "Makefile"):
            mode = archive.getinfo(name).external_attr >> 16
            assert name == "Makefile" or mode & stat.S_IXUSR, name


def test_the_plans_add_up() -> None:
    known = {lesson(path): int(minutes(path)[1]) for path in (ROOT / "notebooks").glob("*.ipynb")}
    plans = re.findall(r"^\| [\w ]+ \| ([\w, ]+) \| (\d+) \| (\d+) \|$", GUIDE, flags=re.MULTILINE)
    assert len(plans) == 4
    for chosen, total, practice in plans:
        assert sum(known[one] for one in chosen.split(", ")) == int(total)
        assert sum(map(exercise_minutes, chosen.split(", "))) == int(practice)
    assert plans[-1][0].split(", ") == sorted(known)


def test_links_and_files_exist() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", GUIDE):
        assert (ROOT / "docs" / link).is_file(), link
    for name in re.findall(r"`(wrappers/[\w./]*)`", GUIDE):
        assert (ROOT / name).exists(), name
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(docs/instructors.md)" in (ROOT / page).read_text(), page
