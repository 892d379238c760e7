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
SIDE_BY_SIDE = """
import os, subprocess, sys, time
from pathlib import Path

BEGUN = Path(__file__).with_name("begun")

def test_a():
    while not BEGUN.exists():
        time.sleep(0.01)

def test_b():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    BEGUN.touch()
    while len(list(Path(os.environ["DDP_COURSE_TESTS"]).glob("gw*"))) > 1:
        time.sleep(0.01)  # until the other worker has looked for what is left
    child.kill()
    child.wait()
"""
DIES = (
    SURVIVOR
    + """
    import os
    os._exit(1)
"""
)
ALONE = """
import os, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

def meanwhile():
    mine = HERE / f"running-{os.getpid()}"
    mine.touch()
    time.sleep(0.3)
    others = len(list(HERE.glob("running-*"))) - 1
    mine.unlink()
    return others

@pytest.mark.parametrize("number", range(6))
def test_beside(number):
    meanwhile()

@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    assert meanwhile() == 0
"""


def session(folder: Path, tests: str, *flags: str, **variables: str) -> tuple[int, str]:
    """Run pytest on a file of its own under a copy of our conftest."""
    ours = (ROOT / "tests" / "conftest.py").read_text()
    (folder / "conftest.py").write_text(ours.replace("PATIENCE_S = 10.0", "PATIENCE_S = 1.0"))
    (folder / "test_x.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    needs(tool)\n    alone\n")
    outer = {"CI", "PYTEST_XDIST_WORKER", "DDP_COURSE_TESTS"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *flags, folder],
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
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


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["one", "workers"])
@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"CI": "1"}, 1), ({"CI": "false"}, 0)])
def test_under_ci_any_skip_fails(
    tmp_path: Path, variables: dict[str, str], code: int, flags: tuple[str, ...]
) -> None:
    skips = "import pytest\n\ndef test_a():\n    pytest.skip('no reason')\n"
    ended, said = session(tmp_path, skips, *flags, **variables)
    assert ended == code
    assert "test_x.py::test_a: no reason" in said


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["one", "workers"])
def test_a_process_that_outlives_the_tests_fails_the_session(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    code, said = session(tmp_path, SURVIVOR, *flags)
    assert code == 1
    assert "still running after all tests" in said
    assert "import time; time.sleep(30)" in said


def test_a_worker_answers_for_its_own_processes_only(tmp_path: Path) -> None:
    """One worker ends while the other's child still runs, and is not blamed for it."""
    code, said = session(tmp_path, SIDE_BY_SIDE, "-n", "2")
    assert code == 0, said


def test_what_a_worker_leaves_that_dies_itself_fails_the_session(tmp_path: Path) -> None:
    code, said = session(tmp_path, DIES, "-n", "1", "--max-worker-restart=0")
    assert code == 1
    assert "still running after all workers" in said
    assert "import time; time.sleep(30)" in said


def test_a_test_that_is_to_be_alone_is(tmp_path: Path) -> None:
    code, said = session(tmp_path, ALONE, "-n", "3")
    assert code == 0, said
