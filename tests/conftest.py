"""What all tests share: a place for runs, optional tools, and proof that nothing is left running.

needs("chromium")     mark a test that needs a system tool. Without the tool it is left out, and
                      listed at the end with the command that brings it; under CI it fails.
pytest.mark.alone     run while no other worker runs a test: for what measures time.
pytest.mark.nightly   leave to `make nightly`.

`pytest -n 2` runs tests in two worker processes below a controller. They share a folder; each
worker has its own folder in it, and answers for the processes that carry that folder's name.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")  # gw0, gw1, …; empty without workers
if not WORKER:
    os.environ["DDP_COURSE_TESTS"] = tempfile.mkdtemp(prefix="ddp-course-tests-")
SHARED = Path(os.environ["DDP_COURSE_TESTS"])
RUNS = SHARED / (WORKER or "main")
RUNS.mkdir()
if WORKER:  # what one worker's tests leave in the temporary folder is no concern of the others
    tempfile.tempdir = os.environ["TMPDIR"] = str(RUNS / "t")
    Path(tempfile.tempdir).mkdir()
os.environ["DDP_COURSE_EXERCISES"] = "exercises"  # those of the course, not a learner's copies
os.environ["DDP_COURSE_HEADLESS"] = "1"
os.environ["DDP_COURSE_RUNS"] = str(RUNS / "runs")
os.environ["DDP_COURSE_DATA"] = str(RUNS / "data")

PATIENCE_S = 10.0  # for what was told to end
LEFT = pytest.StashKey[list[str]]()
MARKS = "DDP_COURSE_RUNS", "DDP_COURSE_RUN"  # a rank has only the second

# Under CI the fuzzing draws the same examples each time; elsewhere it goes on looking.
hypothesis.settings.register_profile("ci", derandomize=True)

UNDER_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
if UNDER_CI:
    hypothesis.settings.load_profile("ci")

# tool: the names it may have on PATH, and the command that brings it
TOOLS = {
    "bwrap": (("bwrap",), "sudo apt-get install bubblewrap"),
    "chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        "sudo apt-get install chromium",
    ),
    "slurm": (
        ("slurmctld", "/usr/sbin/slurmctld"),
        "sudo apt-get install slurmctld slurmd slurm-client munge",
    ),
}


def find_tool(name: str) -> str | None:
    """The path of a system tool, or None."""
    paths = map(shutil.which, TOOLS[name][0])
    return next(filter(None, paths), None)


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test, or a module by `pytestmark`, that needs a system tool from TOOLS."""
    if name not in TOOLS:
        raise ValueError(f"no tool {name!r} in tests/conftest.py; it has {', '.join(TOOLS)}")
    return pytest.mark.needs(name)


def tool(name: str, root: Path = ROOT) -> ModuleType:
    """One of our own programs in tools/, imported as a module."""
    spec = importlib.util.spec_from_file_location(name, root / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def pytest_configure() -> None:
    """Hear Ctrl-C, and let what the tests start hear it, in a shell's background too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        name = str(mark.args[0])
        if find_tool(name) is None:
            reason = f"{name} is not installed; to run it: {TOOLS[name][1]}"
            if UNDER_CI:
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the time limit of a test begins after its turn
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the test's turn: beside other workers' tests, or alone.

    Each test passes the gate. One that is to be alone keeps it shut until the others' have ended.
    """
    if not WORKER:
        return (yield)
    alone = item.get_closest_marker("alone") is not None
    with open(SHARED / "gate", "w") as gate, open(SHARED / "stage", "w") as stage:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(stage, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            fcntl.flock(stage, fcntl.LOCK_UN)  # a child that was forked may hold the file open


@pytest.hookimpl(trylast=True)  # the workers have ended by then
def pytest_sessionfinish(session: pytest.Session) -> None:
    if WORKER:
        return
    session.config.stash[LEFT] = _still_running(f"{SHARED}/gw", set())
    shutil.rmtree(SHARED, ignore_errors=True)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = UNDER_CI and reporter and reporter.stats.get("skipped")
    if (skipped or session.config.stash[LEFT]) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if left := terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.section("still running after all workers")
        terminalreporter.line("\n".join(left), red=True)
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section("left out on this machine")
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.line(f"{report.nodeid}: {str(reason).removeprefix('Skipped: ')}")
    if UNDER_CI:
        terminalreporter.line("CI is set: a test that is left out fails the session", red=True)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail the session if a process that a test started outlives all tests."""
    yield
    if warm := sys.modules.get("ddp_course.process.warm"):
        warm.close()  # it lives as long as its kernel, and that is this process
    family = {child.pid for child in psutil.Process().children(recursive=True)}
    left = _still_running(f"{RUNS}/", family)
    shutil.rmtree(RUNS, ignore_errors=True)
    assert not left, "still running after all tests:\n" + "\n".join(left)


def _still_running(folder: str, family: set[int]) -> list[str]:
    """What does not end in time: of the family, and of all whose environment names the folder."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := _alive(folder, family)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _alive(folder: str, family: set[int]) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid in family or (
                process.pid != os.getpid()
                and any(folder in process.environ().get(name, "") for name in MARKS)
            )
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline()) or process.name()}")
        except psutil.Error:
            continue
    return found
