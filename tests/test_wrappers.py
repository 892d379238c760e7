"""The wrappers for Gradescope and GitHub Classroom, run as these platforms run them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, needs
from test_exports import check_github, check_gradescope

WRAPPERS = ROOT / "wrappers"

# Stands in for an interpreter with the course: $GRADE is the exit code of `grade`.
STUB = """#!/usr/bin/env bash
echo "$*" >>"$SAID"
case "$3 $*" in
  grade*unsafe*) exit 1 ;;
  grade*) sleep "${SLOW:-0}"; exit "$GRADE" ;;
  export*) [ "$GRADE" = 3 ] || printf '{"score": 1, "tests": []}' >"${@: -1}" ;;
esac
"""


def run(script: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(WRAPPERS / script), *words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def autograder(tmp_path: Path) -> Path:
    """The folder that Gradescope prepares, with the course where its zip is unpacked."""
    root = tmp_path / "auto grader"
    (root / "submission").mkdir(parents=True)
    (root / "source").symlink_to(ROOT)
    return root


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


def result(autograder: Path) -> dict[str, Any]:
    return check_gradescope((autograder / "results" / "results.json").read_text())


@needs("bwrap")
def test_gradescope_grades_a_right_and_a_missing_answer(autograder: Path) -> None:
    shutil.copy(ROOT / "solutions" / "ex00_sum_over_ranks.py", autograder / "submission")
    ended = run(
        "gradescope/run_autograder",
        AUTOGRADER=str(autograder),
        PYTHON=sys.executable,
        EXERCISES="ex00 ex02",
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    data = result(autograder)
    full = sum(t["max_score"] for t in data["tests"] if t["name"].startswith("ex00"))
    assert data["score"] == full == sum(t["score"] for t in data["tests"])
    assert {t["status"] for t in data["tests"] if t["name"].startswith("ex00")} == {"passed"}
    assert {t["status"] for t in data["tests"] if t["name"].startswith("ex02")} == {"failed"}
    assert "No answer was handed in" in json.dumps(data)
    assert "sandbox" not in data["output"]


@needs("bwrap")
def test_github_grades_a_stub_and_hands_the_result_on(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "exercises", tmp_path / "submission")
    output = tmp_path / "output"
    ended = run(
        "github/grade.sh",
        str(tmp_path / "submission"),
        PYTHON=sys.executable,
        EXERCISES="ex00",
        GITHUB_OUTPUT=str(output),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    name, _, text = output.read_text().strip().partition("=")
    assert name == "result"
    data = check_github(base64.b64decode(text).decode())
    assert data["status"] == "fail"
    assert data["max_score"] > 0
    assert [test["score"] for test in data["tests"]] == [0]


@pytest.mark.parametrize(
    ("code", "ends", "said"),
    [
        ("0", 0, ""),
        ("1", 0, ""),
        ("2", 2, "The grader failed."),
        ("3", 3, "The grader failed."),
        ("4", 4, "There is no sandbox"),
        ("130", 130, "The grader failed."),
        ("137", 137, "longer than"),
    ],
)
def test_whatever_grade_answers_there_is_a_result(
    autograder: Path, stub: Path, tmp_path: Path, code: str, ends: int, said: str
) -> None:
    ended = run(
        "gradescope/run_autograder",
        AUTOGRADER=str(autograder),
        PYTHON=str(stub),
        GRADE=code,
        SAID=str(tmp_path / "said"),
    )
    assert ended.returncode == ends, ended.stderr
    data = result(autograder)
    assert ("score" in data) == (not said), "our fault is never a score"
    assert said in data.get("output", "")


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_without_an_interpreter_there_is_a_result_too(autograder: Path, python: str) -> None:
    ended = run("gradescope/run_autograder", AUTOGRADER=str(autograder), PYTHON=python)
    assert ended.returncode not in (0, 1)
    data = result(autograder)
    assert "score" not in data
    assert "graded again" in data["output"]


def test_without_a_submission_there_is_a_result_too(autograder: Path, stub: Path) -> None:
    (autograder / "submission").rmdir()
    ended = run("gradescope/run_autograder", AUTOGRADER=str(autograder), PYTHON=str(stub))
    assert ended.returncode == 3
    assert "cannot be read" in result(autograder)["output"]


def test_a_grader_that_takes_too_long_is_ended(
    autograder: Path, stub: Path, tmp_path: Path
) -> None:
    ended = run(
        "gradescope/run_autograder",
        AUTOGRADER=str(autograder),
        PYTHON=str(stub),
        GRADE="0",
        SLOW="300",
        LIMIT_S="1",
        SAID=str(tmp_path / "said"),
    )
    assert ended.returncode == 124
    assert "longer than 1 s" in result(autograder)["output"]


def test_no_sandbox_only_where_that_is_allowed(
    autograder: Path, stub: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    known = {"AUTOGRADER": str(autograder), "PYTHON": str(stub), "GRADE": "4", "SAID": str(said)}
    assert run("gradescope/run_autograder", **known).returncode == 4
    assert "unsafe" not in said.read_text()
    ended = run("gradescope/run_autograder", **known, SANDBOX="optional", EXERCISES="ex00 ex02")
    assert ended.returncode == 0
    assert "No sandbox here" in ended.stdout
    words = said.read_text().splitlines()[-2]
    assert words.endswith("--exercise ex00 --exercise ex02 --unsafe-no-sandbox")


def test_github_has_a_result_when_nothing_works(tmp_path: Path) -> None:
    output = tmp_path / "output"
    ended = run("github/grade.sh", str(tmp_path), PYTHON="/nowhere", GITHUB_OUTPUT=str(output))
    assert ended.returncode == 0
    text = output.read_text().strip().removeprefix("result=")
    data = check_github(base64.b64decode(text).decode())
    assert (data["status"], data["max_score"]) == ("error", 0)


def test_setup_installs_the_sandbox_and_the_course(autograder: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    for name in ("apt-get", "make"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>"{said}"\n')
        path.chmod(0o755)
    path_with_stubs = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    ended = run("gradescope/setup.sh", AUTOGRADER=str(autograder), PATH=path_with_stubs)
    assert ended.returncode == 0, ended.stderr
    lines = said.read_text().splitlines()
    assert any("install" in line and "bubblewrap" in line for line in lines)
    assert lines[-1] == f"make -C {autograder}/source setup CPU=1"


def test_the_workflow_names_what_is_there() -> None:
    flow = yaml.safe_load((WRAPPERS / "github" / "classroom.yml").read_text())
    assert flow["name"] == "Autograding Tests", "the reporter looks for a check of this name"
    steps = flow["jobs"]["autograding"]["steps"]
    grade, reporter = steps[-2:]
    script = grade["run"].split()[1]
    assert (ROOT / script.removeprefix("course/")).is_file()
    assert reporter["with"]["runners"] == grade["id"]
    assert list(reporter["env"]) == [f"{grade['id'].upper()}_RESULTS"]
    assert reporter["env"]["GRADE_RESULTS"] == "${{ steps.grade.outputs.result }}"


def test_scripts_are_sound_and_can_be_run() -> None:
    for script in sorted([*WRAPPERS.rglob("*.sh"), WRAPPERS / "gradescope" / "run_autograder"]):
        assert os.access(script, os.X_OK), script
        subprocess.run(["bash", "-n", str(script)], check=True)
