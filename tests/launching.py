"""What the tests of the launcher share: scripts, patience with a limit, and callers to be ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

# Both ways to start, where they could differ only in what other tests of the plain way prove.
WARM_NOW_PLAIN_NIGHTLY = pytest.mark.parametrize(
    "way", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["warm", "plain"]
)


def ways(name: str, values: Iterable[Any], *, plain: Iterable[Any]) -> pytest.MarkDecorator:
    """Each value by a warm launch, those of `plain` also by a plain torchrun, the rest nightly."""
    known = set(plain)
    return pytest.mark.parametrize(
        ("way", name),
        [
            pytest.param(
                way,
                one,
                id=f"{'warm' if way else 'plain'}-{getattr(one, 'name', one)}",
                marks=() if way or one in known else pytest.mark.nightly,
            )
            for way in (True, False)
            for one in values
        ],
    )


PATIENCE_S = 60.0  # for what must happen, however busy the machine; nothing waits that long


def script(folder: Path, text: str, name: str = "job.py") -> Path:
    """Write a job."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def until(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
    """Wait until the condition holds and return its value; fail, saying what was waited for."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {limit_s:g} s in vain for: {what}"
        time.sleep(0.02)
    return value


def family(pid: int) -> list[psutil.Process]:
    """All living descendants of a process."""
    with suppress(psutil.NoSuchProcess):
        return [p for p in psutil.Process(pid).children(recursive=True) if lives(p)]
    return []


def lives(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def listening_ports(processes: list[psutil.Process]) -> set[int]:
    """The TCP ports on which these processes listen."""
    ports = set()
    for process in processes:
        with suppress(psutil.Error):
            ports |= {c.laddr.port for c in process.net_connections("tcp") if c.status == "LISTEN"}
    return ports


def short_temp(folder: Path) -> str:
    """A folder for temporary files, linked as `tmp`: a socket's path holds 107 bytes at most."""
    temp = tempfile.mkdtemp(prefix="t-")
    (folder / "tmp").symlink_to(temp)
    return temp


def hear_signals() -> None:
    """As in a terminal, though the tests may run under nohup or in a shell's background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def caller(
    folder: Path, text: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that launches: its script, its folder, and a TMPDIR of its own in it."""
    temp = short_temp(folder)
    path = script(folder, text, "caller.py")
    with open(folder / "caller.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", str(path)],
            cwd=folder,
            env={**os.environ, "TMPDIR": temp, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=hear_signals,
        )
    try:
        yield process
    finally:
        below = family(process.pid)
        for one in below:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.kill()
        process.wait()
        shutil.rmtree(temp)
