"""The session's promises: what is left out is listed, under CI nothing is, nothing survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

NEEDS = """
from conftest import needs

@needs("chromium")
def test_page():
    pass
"""
SURVIVOR = """
import subprocess, sys

def test_leak():
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    outlive = "import time; time.sleep(30)"
    subprocess.run([sys.executable, "-c", code, outlive])  # leaves an orphan
"""


def session(folder: Path, tests: str, **variables: str) -> tuple[int, str]:
    """Run pytest on a file of its own under a copy of our conftest."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_x.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs(tool): a system tool\n")
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)],
        env={**environment, **variables},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.returncode, ended.stdout


def test_a_missing_tool_is_listed_with_the_command_that_brings_it(tmp_path: Path) -> None:
    code, said = session(tmp_path, NEEDS, PATH="")
    assert code == 0
    assert "left out on this machine" in said
    assert "test_x.py::test_page: chromium is not installed" in said
    assert "sudo apt-get install chromium" in said


def test_under_ci_a_missing_tool_fails(tmp_path: Path) -> None:
    code, said = session(tmp_path, NEEDS, PATH="", CI="true")
    assert code == 1
    assert "1 failed" in said or "1 error" in said


@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"CI": "1"}, 1), ({"CI": "false"}, 0)])
def test_under_ci_any_skip_fails(tmp_path: Path, variables: dict[str, str], code: int) -> None:
    skips = "import pytest\n\ndef test_a():\n    pytest.skip('no reason')\n"
    assert session(tmp_path, skips, **variables)[0] == code


def test_a_process_that_outlives_the_tests_fails_the_session(tmp_path: Path) -> None:
    code, said = session(tmp_path, SURVIVOR)
    assert code == 1
    assert "still running after all tests" in said
    assert "import time; time.sleep(30)" in said
