"""What all tests share: a place for runs, optional tools, and proof that nothing is left running.

needs("chromium")     mark a test that needs a system tool. Without the tool it is left out, and
                      listed at the end with the command that brings it; under CI it fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path(tempfile.mkdtemp(prefix="ddp-course-tests-"))
os.environ["DDP_COURSE_HEADLESS"] = "1"
os.environ["DDP_COURSE_RUNS"] = str(RUNS / "runs")
os.environ["DDP_COURSE_DATA"] = str(RUNS / "data")

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


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped") if reporter else None
    if skipped and UNDER_CI and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
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
    deadline = time.monotonic() + 10
    while (left := _alive()) and time.monotonic() < deadline:
        time.sleep(0.1)
    shutil.rmtree(RUNS, ignore_errors=True)
    assert not left, "still running after all tests:\n" + "\n".join(left)


def _alive() -> list[str]:
    """Our descendants, and orphans whose environment still names this session's folder."""
    me = psutil.Process()
    family = {process.pid for process in me.children(recursive=True)}
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid in family or (
                process.pid != me.pid
                and any(str(RUNS) in process.environ().get(name, "") for name in MARKS)
            )
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline()) or process.name()}")
        except psutil.Error:
            continue
    return found
