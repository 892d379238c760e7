"""host: the process behind `warm`, a torchrun that has already imported torch.

    kernel ──> guard ──> host            imports torch, touches no device, computes nothing, waits
                          └─fork─> supervisor of one launch (guard.Supervisor)
                                     ├─fork─> agent      torch.distributed.run.main, unchanged
                                     │          └─ N shims, the workers that the agent sees
                                     └─fork─> rank 0 … N-1, forked while the agent gets ready;
                                                each waits for the shim that it will serve

The host forks a supervisor for every connection; the supervisor forks the agent, and a rank for
every shim. All forks happen in processes of one thread that have never seen a device, so a rank may
use CUDA (on GPUs this was not verified). A rank is as a fresh `python -u script`: its own session,
streams, environment, folder, sys.path, random state and thread count; jobs and `ddp_course` are
read from disk by each rank. One difference remains: PYTHONHASHSEED, the order of sets of strings,
is the host's, hence equal in all ranks.

As a program (warm.py starts it under a guard):  host.py LISTENER_FD IDLE_S
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import gc
import importlib
import importlib.machinery
import inspect
import io
import json
import os
import random
import runpy
import select
import selectors
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

# A rendezvous first waits random.uniform(0, 0.3) s, lest many nodes arrive together (torch's
# dynamic_rendezvous.py). Here is one node: this seed draws a wait that is too short to be taken.
_SHORT_WAIT = 8916
LENGTH_BYTES = 8  # of a shim's request: its length comes first
_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.py")


def _main(listener_fd: int, idle_s: float) -> None:
    """The host: import what every rank needs, then fork a supervisor for each launch."""
    listener = socket.socket(fileno=listener_fd)
    listener.set_inheritable(False)
    gc.disable()  # the imports below make nothing but what stays
    # What the agent, a rank and DDP's constructor would import.
    import torch
    import torch._dynamo
    import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend
    import torch.distributed.run
    import torch.nn.parallel
    import torch.optim  # noqa: F401

    inspect.stack()  # the rendezvous asks for it; the first answer indexes every module
    gc.enable()
    gc.collect()
    gc.freeze()  # the collector of a rank leaves these pages alone, so they stay shared
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector.register(wake_read, selectors.EVENT_READ)
    launches: set[int] = set()
    last_launch = time.monotonic()
    while True:
        for key, _ in selector.select(idle_s):
            if key.fileobj is not listener:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                continue
            connection, _ = listener.accept()
            if not same_user(connection):
                connection.close()
                continue
            pid = os.fork()
            if pid == 0:
                listener.close()
                selector.close()
                _leave(_supervise, connection)
            connection.close()
            launches.add(pid)
            last_launch = time.monotonic()
        launches -= _reaped()
        if not launches and time.monotonic() - last_launch > idle_s:
            os._exit(0)


def _supervise(link: socket.socket) -> int:
    """One launch: fork its agent, fork a rank for each shim that connects, then clean up."""
    guard.die_with_parent()
    os.setsid()
    request, stdin = _read_request(link)
    env = request["env"]
    with guard.temporary_folder_if_asked(env) as own:
        status = _Launch(link, {**env, **own}, stdin).run(request)
    link.sendall(json.dumps({"exit": status}).encode() + b"\n")
    return 0


class _Launch:
    def __init__(self, link: socket.socket, env: dict[str, str], stdin: int) -> None:
        self._env, self._stdin = env, stdin
        self._ahead: list[tuple[int, socket.socket]] = []  # ranks that wait for their orders
        self._shims: dict[int, socket.socket] = {}  # pid of a rank -> its shim
        self._pid_of_rank: dict[int, int] = {}
        self._agents: set[int] = set()  # one for each node
        self._supervisor = guard.Supervisor(link)
        self._supervisor.on_exit = self._note_exit
        self._supervisor.ranks = lambda: dict(self._pid_of_rank)
        self._listener = socket.socket(socket.AF_UNIX)
        address = f"ddp-course-{os.getpid()}-{os.urandom(8).hex()}"
        self._listener.bind("\0" + address)
        self._listener.listen(256)
        self._shim = [sys.executable, "-S", "-E", _SHIM, address]
        self._supervisor.selector.register(self._listener, selectors.EVENT_READ, self._serve_shim)

    def run(self, request: dict[str, Any]) -> int:
        self._supervisor.start_node = lambda node: self._start_agent(request, node)
        agents = [self._start_agent(request, node) for node in range(request["nodes"])]
        for _ in range(request["ranks"]):
            self._fork_ahead()
        return int(self._supervisor.watch(*agents))

    def _start_agent(self, request: dict[str, Any], node: int) -> int:
        pid = os.fork()
        if pid == 0:
            _leave(self._agent, request, node)
        self._agents.add(pid)
        self._supervisor.tell(agent=pid)
        return pid

    def _agent(self, request: dict[str, Any], node: int) -> None:
        """Be `torchrun`: its own entry point, told to start shims instead of Python."""
        self._env.update(guard.environment_of(node, request["nodes"], self._env))
        output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _become(self._env, request["cwd"], [self._stdin, output, output])
        import torch.distributed.run as torchrun

        script = [*self._shim, *request["rank_words"]]
        arguments = [*request["torchrun_args"], "--no-python", "--", *script]
        sys.argv = ["torchrun", *arguments]
        random.seed(_SHORT_WAIT if request["nodes"] == 1 else None)
        _wake_at_an_end()
        torchrun.main(arguments)

    def _fork_ahead(self) -> None:
        mine, its = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            mine.close()
            for _, orders in self._ahead:
                orders.close()  # a copy of another rank's line would keep it open
            _leave(_rank, its)
        its.close()
        self._ahead.append((pid, mine))

    def _serve_shim(self) -> None:
        """Give a shim's request (see shim.py) to a rank that waits."""
        shim, _ = self._listener.accept()
        shim.settimeout(5)
        try:
            if not same_user(shim):
                raise OSError("a stranger")
            header, streams, _, _ = socket.recv_fds(shim, LENGTH_BYTES, 3)
            request = _read_exactly(shim, int.from_bytes(header, "big"))
            rank = int(_unpack(request)[2]["RANK"])
        except (OSError, ValueError, KeyError):
            shim.close()  # a shim that was killed while it asked
            return
        shim.settimeout(None)
        if not self._ahead:
            self._fork_ahead()  # a restart
        pid, orders = self._ahead.pop(0)
        with orders, contextlib.suppress(OSError):  # if it was killed, its shim will hear
            socket.send_fds(orders, [header], streams)
            orders.sendall(request)
        for descriptor in streams:
            os.close(descriptor)
        self._shims[pid] = shim
        self._pid_of_rank[rank] = pid
        self._supervisor.selector.register(
            shim, selectors.EVENT_READ, lambda: self._hear_shim(shim, pid)
        )
        self._supervisor.tell(rank=rank, pid=pid)

    def _hear_shim(self, shim: socket.socket, pid: int) -> None:
        try:
            signals = shim.recv(64)
        except OSError:
            signals = b""
        if signals:
            for number in signals:
                self._signal_group(pid, number)
        else:
            self._forget(pid)
            self._signal_group(pid, signal.SIGKILL)

    def _note_exit(self, pid: int, status: int) -> None:
        self._agents.discard(pid)
        if not self._agents:
            for _, orders in self._ahead:
                orders.close()  # nobody will ask for these ranks; they end
            self._ahead.clear()
        self._ahead = [one for one in self._ahead if one[0] != pid]
        for rank, its_pid in list(self._pid_of_rank.items()):
            if its_pid == pid:
                del self._pid_of_rank[rank]
                self._supervisor.tell(rank=rank, pid=pid, status=status)
        shim = self._forget(pid)
        if shim is not None:
            # What the rank leaves in its session (DataLoader workers) goes as torchrun would do it.
            self._signal_group(pid, signal.SIGTERM)
            with contextlib.suppress(OSError):
                shim.sendall(str(status).encode())
            shim.close()

    def _forget(self, pid: int) -> socket.socket | None:
        shim = self._shims.pop(pid, None)
        if shim is not None:
            self._supervisor.selector.unregister(shim)
        return shim

    @staticmethod
    def _signal_group(pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def _wake_at_an_end() -> None:
    """torchrun looks at its workers at intervals; let the end of one cut an interval short.

    So the intervals can be long, and a job is hardly disturbed by being watched.
    """
    from torch.distributed.elastic.agent.server import api

    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def sleep(seconds: float) -> None:
        select.select([ended], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(ended, 4096)

    vars(api)["time"] = types.SimpleNamespace(**{**vars(time), "sleep": sleep})


def _rank(orders: socket.socket) -> None:
    """Be `python -u script args`, as a fresh interpreter would be."""
    guard.die_with_parent()
    header, streams, _, _ = socket.recv_fds(orders, LENGTH_BYTES, 3)
    if not header:
        os._exit(0)  # not needed after all
    cwd, arguments, env = _unpack(_read_exactly(orders, int.from_bytes(header, "big")))
    _become(env, cwd, streams)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module = arguments[1] if arguments[0] == "-m" else ""
    _fresh_modules(cwd if module else os.path.dirname(os.path.join(cwd, arguments[0])))
    _fresh_state()
    recorder.begin(leaves_by_exit=True)
    sys.argv = arguments[1:] if module else list(arguments)
    path = "" if module else arguments[0]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    if module:  # as python -m does it
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        return
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _become(env: dict[str, str], cwd: str, streams: list[int]) -> None:
    """Take a new identity: session, signals, streams, environment, folder."""
    guard.die_with_parent()
    with contextlib.suppress(PermissionError):
        os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (
        signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT
    ):  # fmt: skip
        signal.signal(number, signal.SIG_DFL)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    tempfile.tempdir = None  # it is TMPDIR's again
    time.tzset()
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(descriptor, f"<{name}>", getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if env.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()


def _stream(descriptor: int, name: str, like: Any) -> Any:
    """The stream that `python -u` would have opened."""
    mode = "r" if descriptor == 0 else "w"
    raw: Any = io.FileIO(descriptor, mode, closefd=False)
    raw.name = name
    buffer: Any = io.BufferedReader(raw) if mode == "r" else raw
    stream: Any = io.TextIOWrapper(buffer, like.encoding, like.errors, write_through=True)
    stream.mode = mode
    return stream


def _fresh_modules(folder: str) -> None:
    """Nothing of ours is remembered from the host; the script's folder comes first on sys.path."""
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
    ours = "guard", "recorder", "ddp_course"
    for name in [name for name in sys.modules if name.split(".")[0] in ours]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _fresh_state() -> None:
    """What a fresh process would draw or read at import: random states, threads, debug level."""
    import torch
    import torch.distributed as dist

    torch.default_generator.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(None)
    threads = _threads(os.environ.get("OMP_NUM_THREADS", "1"))
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    dist.set_debug_level_from_env()  # type: ignore[attr-defined]
    gc.unfreeze()


def _threads(said: str) -> int:
    """What OpenMP makes of OMP_NUM_THREADS: "4,2" is 4, and nonsense is one for each core."""
    first = said.split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else len(os.sched_getaffinity(0))


def _leave(work: Callable[..., object], *arguments: Any) -> NoReturn:
    """Run `work` and end the process as Python would end, but without tearing modules down."""
    code, interrupted = 0, False
    try:
        work(*arguments)
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        code = code if abs(code) < 2**63 else -1  # what C makes of it
    except BaseException as error:
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):
        with contextlib.suppress(Exception):
            getattr(sys, name).flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to the user that runs this one (Linux)."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", peer)[1] == os.getuid())


def _read_request(link: socket.socket) -> tuple[dict[str, Any], int]:
    """The launch that is asked for, and the standard input of its ranks.

    Ends the process if the caller has changed its mind since.
    """
    line, descriptors, _, _ = socket.recv_fds(link, 1, 1)
    if not line:
        os._exit(0)
    stdin = descriptors[0] if descriptors else os.open(os.devnull, os.O_RDONLY)
    early = b""
    while b"\n" not in line:
        piece = link.recv(65536)
        if not piece:
            os._exit(0)
        line += piece
    line, _, early = line.partition(b"\n")
    link.setblocking(False)  # while torch was imported it may have asked to stop, or gone
    with contextlib.suppress(BlockingIOError):
        while piece := link.recv(65536):
            early += piece
        os._exit(0)
    link.setblocking(True)
    if b'"stop"' in early:
        os._exit(0)
    return dict(json.loads(line)), stdin


def _unpack(request: bytes) -> tuple[str, list[str], dict[str, str]]:
    """A shim's request: the folder, the script with its arguments, the environment."""
    cwd, count, *rest = request.decode(errors="surrogateescape").split("\0")
    arguments, environment = rest[: int(count)], rest[int(count) :]
    return cwd, arguments, dict(entry.split("=", 1) for entry in environment)


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise OSError("connection closed")
        data += piece
    return bytes(data)


def _reaped() -> set[int]:
    gone: set[int] = set()
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            gone.add(pid)
    return gone


if __name__ == "__main__":
    # Beside this file: the host imports nothing under the name of ddp_course.
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.flags.safe_path:
        sys.path.insert(0, here)
    sys.path.insert(0, os.path.join(os.path.dirname(here), "observe"))
    import guard  # type: ignore[import-not-found,unused-ignore]
    import recorder  # type: ignore[import-not-found,unused-ignore]

    del sys.path[:2]
    _main(int(sys.argv[1]), float(sys.argv[2]))
