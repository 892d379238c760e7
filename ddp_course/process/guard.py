"""guard: nothing that it starts outlives its caller.

torchrun puts every rank into a session of its own, so a signal to torchrun's process group misses
the ranks, and SIGKILL of torchrun orphans them. A `Supervisor` is the child-subreaper of all that
it starts (prctl(2), PR_SET_CHILD_SUBREAPER): orphans become its children and are found in /proc.
Its caller holds the other end of a socket, the *link*. The end of file on it, whatever ended the
caller, means stop: SIGTERM to the child, a short grace, then SIGKILL to every descendant until none
is left.

Over the link the caller sends {"signal": 19, "rank": 2}, {"who": true} or {"stop": true}. The
supervisor tells {"rank": 2, "pid": 4711} when it knows a rank and {"exit": status} at the end.
A launch over several nodes has one torchrun, hence one child, for each; {"node": "lose"} kills the
last one with its ranks, as if its machine had lost power, and {"node": "return"} starts it again.

As a program (`start` runs it, standard library only, some 40 ms):  guard.py FD KIND NODES command …
Not Linux: descendants are taken from `ps` and remembered; this path was not verified.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

GRACE_S = 1.2  # for an orderly end; then SIGKILL
_PREFIX = "ddpc-"
_OURS = re.compile(_PREFIX + r"[a-z0-9_]{8}")  # as mkdtemp names them; no folder of a learner
_OUR_OWN = re.compile(rb"/(guard|host)\.py\0")
_RUN = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{4}")  # as runs.new_folder names it
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def start(
    command: Sequence[str],
    *,
    kind: str,
    nodes: int = 1,
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    stdin: int = subprocess.DEVNULL,
    output: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `command` under a guard; the caller keeps the link and must not lose it.

    kind  "launch": one torchrun.
          "host": a warm host; an orphan that surfaces while it lives is killed at once.
    nodes how many processes run the command, each with a log folder of its own
    """
    link, far_end = socket.socketpair()
    keep(link)
    with far_end:
        process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-E",
                __file__,
                str(far_end.fileno()),
                kind,
                str(nodes),
                *command,
            ],
            pass_fds=(far_end.fileno(), *pass_fds),
            start_new_session=True,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT if output != subprocess.DEVNULL else output,
            env=dict(env),
            cwd=cwd,
        )
    return process, link


def keep(link: socket.socket) -> None:
    """Close this link in a fork of the caller: its end of file must mean the caller's death."""
    _links.add(link)


def _forget_links() -> None:
    for link in _links:
        link.close()


_links: weakref.WeakSet[socket.socket] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_links)


class Supervisor:
    """Owns one process tree: passes signals to its ranks, reaps it, and leaves nothing of it."""

    def __init__(self, link: socket.socket, *, kill_strays: bool = False) -> None:
        self.selector = selectors.DefaultSelector()
        self.on_exit: Callable[[int, int], None] = lambda pid, status: None
        self.ranks: Callable[[], dict[int, int]] = self._ranks_from_environ
        self._link, self._kill_strays = link, kill_strays
        self.start_node: Callable[[int], int] = lambda node: 0  # returns the pid of its torchrun
        self._nodes: list[int] = []  # the torchrun of each node
        self._children: set[int] = set()  # those of them that live
        self._lost: set[int] = set()  # those whose node was lost on purpose
        self._worst, self._status = 0, None  # type: int, int | None
        self._deadline: float | None = None
        self._buffer = b""
        self._seen: set[int] = set()
        if sys.platform == "linux":
            prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake, self._wake = os.pipe()
        for end in (wake, self._wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(ignored, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self.selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
        self.selector.register(link, selectors.EVENT_READ, self._hear)

    def watch(self, *children: int) -> int:
        """Serve until the children (one for each node) and all their descendants are gone.

        Returns a child's wait status: the first that is not 0, leaving out nodes that were lost.
        """
        self._nodes, self._children = list(children), set(children)
        while True:
            for key, _ in self.selector.select(self._patience()):
                key.data()
            self._reap()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._kill_all()
            if self._status is not None and not self._anyone_left():
                return self._status
            if self._kill_strays:
                self._end_strays()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Begin the end: SIGTERM to the children now, SIGKILL to everyone after the grace."""
        if self._deadline is None:
            self._deadline = time.monotonic() + grace_s
            for child in self._children:
                send_signal(child, signal.SIGTERM)

    def tell(self, **message: Any) -> None:
        """Send one message to the caller, who may be gone."""
        with contextlib.suppress(OSError):
            self._link.sendall(json.dumps(message).encode() + b"\n")

    def _patience(self) -> float | None:
        if self._deadline is not None:
            return max(0.0, min(0.05, self._deadline - time.monotonic())) or 0.02
        return 1.0 if self._kill_strays else None

    def _hear(self) -> None:
        try:
            data = self._link.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(self._link)
            self.stop()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, message: dict[str, Any]) -> None:
        if message.get("stop"):
            self.stop()
        elif message.get("who"):
            for rank, pid in self.ranks().items():
                self.tell(rank=rank, pid=pid)
        elif "node" in message:
            self._move_node(message["node"])
        elif "signal" in message:
            pid = self.ranks().get(message["rank"], 0)
            if pid:
                send_signal(pid, message["signal"])

    def _move_node(self, how: str) -> None:
        """Lose the last node, or start another one in its place."""
        if how == "lose" and len(self._nodes) > 1:
            pid = self._nodes.pop()
            self._lost.add(pid)
            for one in {pid} | descendants(pid):
                send_signal(one, signal.SIGKILL)
        elif how == "return" and self._children and self._deadline is None:
            pid = self.start_node(len(self._nodes))
            self._nodes.append(pid)
            self._children.add(pid)

    def _ranks_from_environ(self) -> dict[int, int]:
        """The children's children that torchrun gave a RANK: {rank: pid}."""
        found: dict[int, int] = {}
        for pid, parent in parents().items():
            if parent in self._children:
                with contextlib.suppress(OSError):
                    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        if entry.startswith(b"RANK="):
                            found[int(entry[5:])] = pid
        return found

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                self._children.discard(pid)
                self._worst = self._worst or (0 if pid in self._lost else status)
                if not self._children:
                    self._status, self._deadline = self._worst, None
                    if self._anyone_left():
                        self.stop(0.5)
            self.on_exit(pid, status)

    def _anyone_left(self) -> set[int]:
        left = descendants(os.getpid())
        if sys.platform != "linux":
            left |= self._seen & set(parents())
            self._seen |= left
        return left

    def _kill_all(self) -> None:
        for pid in self._anyone_left():
            send_signal(pid, signal.SIGKILL)

    def _end_strays(self) -> None:
        me = os.getpid()
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
            for stray in {int(pid) for pid in children} - self._children:
                for pid in {stray} | descendants(stray):
                    send_signal(pid, signal.SIGKILL)


def environment_of(node: int, nodes: int, env: Mapping[str, str]) -> dict[str, str]:
    """What differs between the torchruns of several nodes: their logs, and who hosts the store.

    On one host each would take itself for the one that hosts (c10d_rendezvous_backend.py), and the
    first to come would; it must not be a node that can be lost.
    """
    if nodes == 1:
        return {}
    conf = [f"is_host={int(node == 0)}", env.get("PET_RDZV_CONF", "")]
    return {
        "PET_LOG_DIR": os.path.join(env.get("PET_LOG_DIR", "logs"), f"node-{node}"),
        "PET_RDZV_CONF": ",".join(filter(None, conf)),
    }


def parents() -> dict[int, int]:
    """Every living process (zombies left out) and its parent: {pid: parent's pid}."""
    table: dict[int, int] = {}
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{name}/stat", "rb") as file:
                        state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state not in (b"Z", b"X"):
                        table[int(name)] = int(parent)
        return table
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        pid, parent_pid, state_name = line.split()[:3]
        if not state_name.startswith("Z"):
            table[int(pid)] = int(parent_pid)
    return table


def descendants(root: int) -> set[int]:
    """The living processes below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [root]
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in found]
        found.update(below)
        queue.extend(below)
    return found


def any_stopped(pid: int) -> bool:
    """Whether a process or a child of it stands still, stopped by a signal (Linux)."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        states = [Path(f"/proc/{one}/stat").read_bytes() for one in (pid, *children)]
        return any(state.rpartition(b")")[2].split()[0] == b"T" for state in states)
    return False


def end_leftovers(runs: Path) -> set[int]:
    """Kill what runs below this folder have left although they are over (Linux).

    A guard and its torchrun that are killed at the same moment leave ranks that nobody knows.
    The environment of a plain rank, and of whatever a rank starts, names its run; a run is over
    when it has a result, or when nobody holds its folder's lock (see runs.Lock) because whoever
    launched it is gone.
    """
    if sys.platform != "linux":
        return set()
    left = set()
    for pid in parents():
        with contextlib.suppress(OSError):
            if _OUR_OWN.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                continue  # a host serves many runs, and warm ranks go with it
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name == b"DDP_COURSE_RUN" and _is_over(Path(os.fsdecode(value)), runs):
                    left |= {pid} if _sees_our_files(pid) else set()
    for pid in left:
        send_signal(pid, signal.SIGKILL)
    return left


def _sees_our_files(pid: int) -> bool:
    """Not in a container, where the same path is another folder."""
    return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")


def _is_over(run: Path, runs: Path) -> bool:
    if run.parent != runs or not _RUN.fullmatch(run.name):
        return False  # a folder that somebody else gave to a torchrun of theirs
    if not run.is_dir() or (run / "result.json").exists():
        return True
    if not (run / "run.json").exists():
        return False
    lock = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def prctl(option: int, value: int) -> None:
    """prctl(2), which Python does not offer."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the system to signal this process when the thread that forked it ends (Linux)."""
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, number)


@contextlib.contextmanager
def temporary_folder() -> Any:
    """A folder for a TMPDIR: locked while in use, gone afterwards.

    Folders that a killed owner left behind are recognised by their free lock, and removed.
    """
    root = _root_of_temporary_folders()
    for old in root.glob(f"{_PREFIX}*"):
        if _OURS.fullmatch(old.name):
            _remove_if_abandoned(old)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _root_of_temporary_folders() -> Path:
    """The caller's, or /tmp if a socket's path would be too long below it.

    A worker of a DataLoader makes `pymp-…/listener-…` there, and an address holds 107 bytes.
    """
    root = Path(tempfile.gettempdir())
    longest = root / f"{_PREFIX}abcd1234" / "pymp-abcd1234" / "listener-abcd1234"
    if len(os.fsencode(longest)) > 107 and os.access("/tmp", os.W_OK | os.X_OK):
        return Path("/tmp")
    return root


@contextlib.contextmanager
def temporary_folder_if_asked(env: Mapping[str, str]) -> Any:
    """A TMPDIR for a launch that asks for its own: a job of the course leaves nothing behind.

    A learner's script has the caller's, as under torchrun: what it leaves there is meant to stay.
    """
    if env.get("DDP_COURSE_OWN_TMPDIR"):
        with temporary_folder() as folder:
            yield {"TMPDIR": folder}
    else:
        yield {}


def _remove_if_abandoned(folder: Path) -> None:
    try:
        if folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < 5:
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its owner lives
    finally:
        os.close(lock)


def _main(descriptor: int, kind: str, nodes: int, command: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    supervisor = Supervisor(link, kill_strays=kind == "host")
    # A launch's torchrun stops its ranks when it is asked to; a host is simply ended.
    last_words = signal.SIGTERM if kind == "launch" else signal.SIGKILL

    def before_exec() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(last_words)

    with temporary_folder_if_asked(os.environ) as temp:
        started = []  # kept, so that Python does not reap them

        def start_node(node: int) -> int:
            own = {**temp, **environment_of(node, nodes, os.environ)}
            child = subprocess.Popen(
                command, preexec_fn=before_exec, close_fds=False, env={**os.environ, **own}
            )
            started.append(child)
            return child.pid

        supervisor.start_node = start_node
        status = supervisor.watch(*map(start_node, range(nodes)))
    supervisor.tell(exit=status)
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    os._exit(_main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
