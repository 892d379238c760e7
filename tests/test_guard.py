"""The guard's parts that need no launch; tests/test_survivors.py proves what it is for."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddp_course.process import guard

OLD = time.time() - 3600


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files, with a short name."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def make_old(folder: Path) -> Path:
    folder.mkdir()
    (folder / "file").write_text("kept?")
    os.utime(folder, (OLD, OLD))
    return folder


def test_temporary_folder_lives_as_long_as_its_block(temp: Path) -> None:
    with guard.temporary_folder() as folder:
        Path(folder, "file").write_text("x")
        assert Path(folder).parent == temp
        assert os.stat(folder).st_mode & 0o077 == 0, "others could read it"
    assert list(temp.iterdir()) == []


def test_a_socket_has_room_in_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataLoader's worker makes one; macOS and SLURM have long paths for temporary files."""
    for length in range(20, 100, 7):
        deep = Path(tempfile.mkdtemp(prefix="x" * length, dir="/tmp"))
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        try:
            with guard.temporary_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
                inner = tempfile.mkdtemp(prefix="pymp-", dir=folder)
                listener.bind(tempfile.mktemp(prefix="listener-", dir=inner))
        finally:
            deep.rmdir()


def test_a_folder_whose_owner_was_killed_is_removed(temp: Path) -> None:
    abandoned = make_old(temp / "ddpc-abcd1234")
    with guard.temporary_folder():
        assert not abandoned.exists()


def test_a_folder_in_use_is_kept_however_old(temp: Path) -> None:
    with guard.temporary_folder() as used:
        os.utime(used, (OLD, OLD))
        with guard.temporary_folder():
            assert Path(used).is_dir()


@pytest.mark.parametrize("name", ["ddpc-main", "ddpc-notes.txt", "ddpc", "ddp-course-abcd1234"])
def test_what_a_learner_unpacked_beside_it_is_kept(temp: Path, name: str) -> None:
    mine = make_old(temp / name)
    with guard.temporary_folder():
        assert (mine / "file").read_text() == "kept?"


def test_a_link_is_not_followed(temp: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = make_old(tmp_path_factory.mktemp("else") / "mine")
    (temp / "ddpc-abcd1234").symlink_to(target)
    with guard.temporary_folder():
        assert (target / "file").is_file()


def test_descendants_are_found_at_any_depth() -> None:
    below, end = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os.setsid()
            os.write(end, str(os.getpid()).encode())
        time.sleep(60)
        os._exit(0)
    grandchild = int(os.read(below, 20))
    try:
        assert {child, grandchild} <= guard.descendants(os.getpid())
    finally:
        for pid in (grandchild, child):
            guard.send_signal(pid, 9)
        os.waitpid(child, 0)


def test_signalling_a_process_that_is_gone_is_no_error() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    guard.send_signal(child, 15)


SLEEPS = [sys.executable, "-S", "-c", "import time\nprint(flush=True)\ntime.sleep(600)"]


def test_what_a_run_that_is_over_has_left_is_ended(tmp_path: Path) -> None:
    """Told by the environment alone: the orphans of a guard that was killed have no parent."""
    runs = tmp_path / "runs"
    names = "live", "finished", "abandoned", "removed", "not ours"
    folders = {name: runs / f"20260101-000000-{name}-abcd" for name in names}
    folders |= {"a shell's": runs / "mine", "elsewhere": tmp_path / "20260101-000000-job-abcd"}
    for name, folder in folders.items():
        if name != "removed":
            folder.mkdir(parents=True)
        if name not in ("removed", "not ours"):
            (folder / "run.json").write_text("{}")
    (folders["finished"] / "result.json").write_text("{}")
    (folders["elsewhere"] / "result.json").write_text("{}")
    started = {
        name: subprocess.Popen(
            SLEEPS, env={**os.environ, "DDP_COURSE_RUN": str(folder)}, stdout=subprocess.PIPE
        )
        for name, folder in folders.items()
    }
    try:
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
        lock = os.open(folders["live"], os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        ended = guard.end_leftovers(runs)
        os.close(lock)
        over = ("finished", "abandoned", "removed")
        assert ended == {started[name].pid for name in over}
        for name in over:
            assert started[name].wait(60) == -signal.SIGKILL
        assert all(started[name].poll() is None for name in started.keys() - set(over))
    finally:
        for process in started.values():
            process.kill()
            process.communicate()
