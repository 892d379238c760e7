"""Nothing survives: however a launch's caller ends, all that it started has gone within 3 s.

Every test first shows that the processes are there. They say nothing and hang: ranks that print die
of a broken pipe by themselves, and would hide a defect.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from launching import caller, family, listening_ports, lives, script, short_temp, until, ways

GONE_S = 3.0
# The promise holds for a machine that has a core to spare; a busy one may be slower to be told.
TOLERANCE_S = 3.0 if os.getloadavg()[0] < (os.cpu_count() or 1) else 12.0

# Rank 0 dies politely, rank 1 ignores SIGTERM; both have children, and a daemon that has left the
# session. Neither imports torch: only torchrun does.
SILENT = """
    import os, signal, sys, time
    from pathlib import Path

    rank = int(os.environ["RANK"])
    if rank == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(f"ready-{rank}-daemon").write_text(str(os.getpid()))
            while True:
                time.sleep(60)
        os._exit(0)
    if os.fork() == 0:
        Path(f"ready-{rank}-child").write_text(str(os.getpid()))
        while True:
            time.sleep(60)
    Path(f"ready-{rank}-rank").write_text(str(os.getpid()))
    while True:
        time.sleep(60)
    """
SILENT_READY = [f"ready-{rank}-{who}" for rank in (0, 1) for who in ("rank", "child", "daemon")]

# Rank 0 waits in a collective, rank 1 in its data, each with two workers.
TRAINING = """
    import os, time
    from pathlib import Path
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 99

        def __getitem__(self, index):
            if index > 3:
                time.sleep(60)
            return index, os.getpid()

    dist.init_process_group("gloo")
    loader = iter(DataLoader(Slow(), batch_size=1, num_workers=2))
    for _ in range(4):
        _, worker = next(loader)
        Path(f"ready-{dist.get_rank()}-worker-{worker.item()}").write_text(str(worker.item()))
    Path(f"ready-{dist.get_rank()}-rank").write_text(str(os.getpid()))
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
    next(loader)
    """

CALLER = """
    from ddp_course import launch
    launch({job!r}, ranks=2, warm={way}, limit_s=600)
    """


@pytest.fixture(params=[True, False], ids=["warm", "plain"])
def way(request: pytest.FixtureRequest) -> bool:
    """Both ways to start: `warm=way`."""
    return bool(request.param)


def is_ready(folder: Path, names: list[str] = SILENT_READY) -> bool:
    return all((folder / name).exists() and (folder / name).read_text() for name in names)


def ready_pids(folder: Path) -> set[int]:
    return {int(path.read_text()) for path in folder.glob("ready-*")}


def shown_alive(root: int, folder: Path) -> list[psutil.Process]:
    """All that `root` has started, proven to include what the ranks say of themselves."""
    below = family(root)
    assert ready_pids(folder) <= {process.pid for process in below}
    return below


def all_listening() -> set[int]:
    return {c.laddr.port for c in psutil.net_connections("tcp") if c.status == "LISTEN"}


def assert_gone(below: list[psutil.Process], folder: Path, since: float) -> None:
    """All of them have gone in time, with their ports and our temporary folders.

    A script of one's own has the temporary folder of whoever launches: what its workers make there
    (pymp-…) and do not live to remove stays, as under torchrun. A job of the course leaves nothing.
    """
    ports = listening_ports(below)  # of those that still live; usually none by now
    limit_s = GONE_S + TOLERANCE_S
    while left := [p for p in below if lives(p)]:
        took = time.monotonic() - since
        assert took < limit_s, f"after {took:.1f} s: " + "\n".join(map(str, left))
        time.sleep(0.02)
    until(lambda: not ports & all_listening(), f"the end of the ports {ports}", limit_s)
    temp = folder / "tmp"
    ours = lambda: [name for name in os.listdir(temp) if not name.startswith("pymp-")]  # noqa: E731
    until(lambda: not ours(), f"{temp} to be empty: {ours()}", limit_s)


@ways(
    "number",
    [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
    plain=[signal.SIGKILL, signal.SIGINT],
)
def test_the_caller_is_ended_by_a_signal(tmp_path: Path, way: bool, number: signal.Signals) -> None:
    job = script(tmp_path, SILENT)
    with caller(tmp_path, CALLER.format(job=str(job), way=way)) as process:
        until(lambda: is_ready(tmp_path), "the ranks")
        below = shown_alive(process.pid, tmp_path)
        assert listening_ports(below), "torchrun's store"
        since = time.monotonic()
        process.send_signal(number)
        assert_gone(below, tmp_path, since)
        process.wait(10)
    assert number != signal.SIGINT or "KeyboardInterrupt" in (tmp_path / "caller.log").read_text()


def test_a_job_of_the_course_leaves_no_temporary_file(tmp_path: Path, way: bool) -> None:
    with caller(tmp_path, CALLER.format(job="hang_data_worker", way=way)) as process:
        temp = tmp_path / "tmp"
        until(lambda: list(temp.rglob("pymp-*")), "a data worker")
        below = family(process.pid)
        since = time.monotonic()
        process.kill()
        assert_gone(below, tmp_path, since)
        assert os.listdir(temp) == []


@pytest.mark.parametrize("what", ["agent", "a rank", "all ranks are stopped"])
def test_training_ranks_with_workers(tmp_path: Path, way: bool, what: str) -> None:
    """SIGKILL of torchrun's agent or of a rank ends the run; stopped ranks end with the caller."""
    job = script(tmp_path, TRAINING)
    with caller(tmp_path, CALLER.format(job=str(job), way=way)) as process:
        until(
            lambda: (
                is_ready(tmp_path, ["ready-0-rank", "ready-1-rank"])
                and len(list(tmp_path.glob("ready-*-worker-*"))) == 4
            ),
            "the ranks and their workers",
        )
        below = shown_alive(process.pid, tmp_path)
        ranks = [psutil.Process(int((tmp_path / f"ready-{r}-rank").read_text())) for r in (0, 1)]
        since = time.monotonic()
        if what == "agent":
            agent_of(ranks[0], below, way).kill()
        elif what == "a rank":
            ranks[1].kill()
        else:
            for rank in ranks:
                rank.suspend()
            process.kill()
        assert_gone(below, tmp_path, since)  # the host too: its caller has nothing more to do
        if what != "all ranks are stopped":
            assert process.wait(60) == 0
            assert "FAILED" in (tmp_path / "caller.log").read_text()


def is_host(process: psutil.Process) -> bool:
    """A warm host, or its guard."""

    def guards_a_host(one: psutil.Process | None) -> bool:
        with suppress(psutil.Error):
            words = one.cmdline() if one else []
            return "host" in words and any(word.endswith("guard.py") for word in words)
        return False

    return guards_a_host(process) or guards_a_host(process.parent())


def agent_of(rank: psutil.Process, below: list[psutil.Process], way: bool) -> psutil.Process:
    """torchrun's agent: the parent of a plain rank, or of a warm rank's shim."""
    if way:
        rank = next(p for p in below if any("shim.py" in word for word in p.cmdline()))
    parent = rank.parent()
    assert parent is not None
    return parent


def test_the_caller_forks_before_it_dies(tmp_path: Path, way: bool) -> None:
    """A fork holds copies of the caller's descriptors; its life must not stand for the caller's."""
    job = script(tmp_path, SILENT)
    text = f"""
        import os, threading, time
        from ddp_course import launch

        def fork():
            while not os.path.exists("ready-1-rank"):
                time.sleep(0.01)
            if os.fork() == 0:
                with open("forked.txt", "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(120)
                os._exit(0)

        threading.Thread(target=fork, daemon=True).start()
        launch({str(job)!r}, ranks=2, warm={way}, limit_s=600)
        """
    with caller(tmp_path, text) as process:
        until(lambda: is_ready(tmp_path), "the ranks")
        until(lambda: is_ready(tmp_path, ["forked.txt"]), "the fork")
        fork = psutil.Process(int((tmp_path / "forked.txt").read_text()))
        below = [p for p in shown_alive(process.pid, tmp_path) if p != fork]
        since = time.monotonic()
        process.kill()
        try:
            assert lives(fork)
            assert_gone(below, tmp_path, since)
        finally:
            fork.kill()


def test_the_caller_is_killed_while_the_host_imports_torch(tmp_path: Path) -> None:
    job = script(tmp_path, SILENT)
    with caller(tmp_path, CALLER.format(job=str(job), way=True)) as process:
        below = until(
            lambda: [p for p in family(process.pid) if is_host(p)][1:] and family(process.pid),
            "the host's start",
        )
        since = time.monotonic()
        process.kill()
        assert_gone(below, tmp_path, since)
    assert ready_pids(tmp_path) == set()


# In Jupyter


CELL = """
from ddp_course import launch
run = launch({job!r}, ranks=2, warm={way}, limit_s=600)
"""


class Notebook:
    """A kernel with a client, its folder, and what runs below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._temp = short_temp(folder)
        env = {**os.environ, "TMPDIR": self._temp, "DDP_COURSE_HEADLESS": "0"}
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    def run(self, code: str, *, wait: bool = True) -> None:
        message = self.client.execute(code)
        if wait:
            reply = until(lambda: self._reply(message), "the cell's end", 120)
            if reply["status"] == "aborted":  # it was queued behind a cell that failed
                self.run(code)
            else:
                assert reply["status"] == "ok", reply

    def _reply(self, message: str) -> dict[str, str] | None:
        with suppress(Exception):
            reply = self.client.get_shell_msg(timeout=1)
            if reply["parent_header"]["msg_id"] == message:
                return dict(reply["content"])
        return None

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        shutil.rmtree(self._temp)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()


ENDS: dict[str, Callable[[Notebook], None]] = {
    "restart": lambda notebook: notebook.manager.restart_kernel(),
    "restart now": lambda notebook: notebook.manager.restart_kernel(now=True),
    "SIGKILL": lambda notebook: notebook.manager.signal_kernel(signal.SIGKILL),
    "interrupt of a waiting cell": lambda notebook: notebook.manager.interrupt_kernel(),
    "interrupt between cells": lambda notebook: notebook.manager.interrupt_kernel(),
}


@ways("end", ENDS, plain=["SIGKILL", "interrupt of a waiting cell"])
def test_a_kernel_ends(notebook: Notebook, way: bool, end: str) -> None:
    job = script(notebook.folder, SILENT)
    notebook.run(CELL.format(job=str(job), way=way))
    until(lambda: is_ready(notebook.folder), "the ranks")
    if end == "interrupt of a waiting cell":
        notebook.run("open('waits', 'w').write('x'); run.wait()", wait=False)
        until(lambda: is_ready(notebook.folder, ["waits"]), "the cell")
    kernel = psutil.Process(notebook.pid)
    below = shown_alive(kernel.pid, notebook.folder)
    hosts = [p for p in below if is_host(p)]
    since = time.monotonic()
    ENDS[end](notebook)
    if "interrupt" not in end:
        assert_gone(below, notebook.folder, since)
        return
    assert lives(kernel)
    limit_s = GONE_S + TOLERANCE_S
    launched = [p for p in below if p not in hosts]
    until(lambda: not any(map(lives, launched)), "the end of the launch", limit_s)
    for host in hosts:
        assert lives(host), "the host serves the next launch"
    (folder,) = (notebook.folder / "tmp").iterdir()  # the host's
    assert {path.name for path in folder.iterdir()} <= {f"torchinductor_{getpass.getuser()}"}
    notebook.run("run.wait(); assert run.ended == 'stopped', run")


@ways("number", [signal.SIGTERM, signal.SIGKILL], plain=[signal.SIGKILL])
def test_the_server_is_closed(tmp_path: Path, way: bool, number: signal.Signals) -> None:
    """A Jupyter server, its kernel, and a launch below it: all go with the server."""
    job = script(tmp_path, SILENT)
    temp = short_temp(tmp_path)
    cell = CELL.format(job=str(job), way=way)
    script(tmp_path, SERVER, "server.py")
    env = {**os.environ, "TMPDIR": temp, "DDP_COURSE_HEADLESS": "0", "CELL": cell}
    env["JUPYTER_RUNTIME_DIR"] = str(tmp_path / "runtime")
    env["JUPYTER_CONFIG_DIR"] = env["IPYTHONDIR"] = str(tmp_path / "config")
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "server.py"], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        until(lambda: is_ready(tmp_path), "the ranks", 120)
        below = shown_alive(server.pid, tmp_path)
        since = time.monotonic()
        server.send_signal(number)
        assert_gone(below, tmp_path, since)
    finally:
        for process in family(server.pid):
            process.kill()
        server.kill()
        server.wait()
        shutil.rmtree(temp)


# jupyter-server with one kernel, which its own extension point starts and feeds: no browser.
SERVER = """
    import asyncio, os
    from jupyter_server.serverapp import ServerApp

    app = ServerApp.instance()
    app.initialize(["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--no-browser",
                    "--allow-root", f"--ServerApp.root_dir={os.getcwd()}"])

    async def feed():
        kernel = await app.kernel_manager.start_kernel()
        client = app.kernel_manager.get_kernel(kernel).client()
        client.start_channels()
        await client.wait_for_ready(timeout=120)
        client.execute(os.environ["CELL"])
        app.kept = client

    app.io_loop.add_callback(feed)
    app.start()
    """
