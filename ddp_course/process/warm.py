"""warm: launches that reuse a process which has already imported torch.

The caller's side of host.py. One host for each process that launches; it starts in the
background, ends after ten minutes without a launch, and comes back on demand. A host is never used
for a launch whose environment differs in what Python or torch read while they are imported.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_course.errors import CannotRun
from ddp_course.process import guard

IDLE_S = 600.0
_HERE = Path(__file__).parent
_RECORDER = _HERE.parent / "observe" / "recorder"
_READ_AT_IMPORT = (
    "PYTHON", "LD_", "LC_", "LANG", "TORCH", "PYTORCH", "ATEN_", "KINETO", "CUDA", "HIP_", "NCCL",
    "TRITON", "NUMPY_", "NPY_", "MKL", "OPENBLAS", "BLIS", "KMP_", "GOMP_", "OMP_", "MALLOC_",
)  # fmt: skip
_READ_BY_EACH_RANK = (
    "TORCHELASTIC",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_DISABLE_SHARE_RDZV",
    "OMP_NUM_THREADS",
)
_NO_CALLER = "PYTHONSTARTUP", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED"  # each rank obeys by itself


class Host:
    """A running host; `connect` opens one launch."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.signature = signature(env)
        self._address = f"\0ddp-course-{os.getpid()}-{os.urandom(16).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            descriptor = listener.fileno()
            command = [sys.executable, str(_HERE / "host.py"), str(descriptor), str(IDLE_S)]
            # One thread while it imports: OpenBLAS and OpenMP start theirs at import otherwise.
            single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **_import_env(env)}
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the host
            self._guard, self._link = guard.start(
                command,
                kind="host",
                env={**env, **single, "DDP_COURSE_OWN_TMPDIR": "1"},
                output=self._said,
                pass_fds=[descriptor],
            )

    @property
    def pid(self) -> int:
        """The process id of the host's guard."""
        return self._guard.pid

    def alive(self) -> bool:
        """Whether it can take a launch: neither gone nor stopped by a signal."""
        return self._guard.poll() is None and not guard.any_stopped(self._guard.pid)

    def connect(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> socket.socket:
        """Open one launch; the connection is its link (see guard). Raises OSError if it is gone.

        descriptors  the standard input of its ranks, or nothing
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._address)
            text = json.dumps(request).encode() + b"\n"
            socket.send_fds(connection, [text[:1]], descriptors)
            connection.sendall(text[1:])
        except OSError:
            connection.close()
            raise
        guard.keep(connection)
        return connection

    def close(self) -> None:
        """End the host and every launch that it carries."""
        self._link.close()
        try:
            self._guard.wait(5)
        except subprocess.TimeoutExpired:
            self._guard.kill()
        self._said.close()

    def last_words(self) -> str:
        """What the host or its guard printed last, in one line: an error, or nothing."""
        self._said.seek(0)
        return telling(self._said.read().decode(errors="replace").split("\n"))


_lock = threading.Lock()
_host: Host | None = None
_last_words = ""  # of the latest host that was closed


def available() -> bool:
    """Whether this platform can start warm: Linux, where a process of one thread may fork."""
    return sys.platform == "linux" and hasattr(os, "fork")


def host(env: Mapping[str, str]) -> Host:
    """The host for launches with this environment; starts one, or another one, when needed."""
    global _host
    with _lock:
        if _host is not None and not (_host.alive() and _host.signature == signature(env)):
            _host.close()
            _host = None
        if _host is None:
            _host = Host(env)
        return _host


def connect(
    env: Mapping[str, str], request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> socket.socket:
    """Open a launch in a warm host, in a new one if the present one has just gone."""
    for _ in range(3):
        try:
            return host(env).connect(request, descriptors)
        except OSError:
            close()
    raise no_host()


def no_host() -> CannotRun:
    """The error for a host that ended before it could take a launch."""
    return CannotRun(
        "The warm host does not start.",
        cause=_last_words or "memory is short, or it was killed",
        action="run `python -m ddp_course doctor`, or launch(…, warm=False)",
    )


def close() -> None:
    """End this process's warm host, if there is one."""
    global _host, _last_words
    with _lock:
        if _host is not None:
            _last_words = _host.last_words()
            _host.close()
            _host = None


atexit.register(close)


def telling(lines: Sequence[str]) -> str:
    """The line that says why a process ended: its last exception, why it crashed, or the last."""
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    crashed = [line for line in lines if re.match(r" *what\(\): |Fatal Python error", line)]
    return (raised[-1:] or crashed[:1] or [one for one in lines if one.strip()][-1:] or [""])[0]


def signature(env: Mapping[str, str]) -> tuple[Any, ...]:
    """What makes two launches share a host: interpreter, import-time environment, our own files."""
    ours = *map(_HERE.joinpath, ("guard.py", "host.py", "shim.py")), *sorted(_RECORDER.glob("*.py"))
    files = [path.stat() for path in ours]
    return (
        sys.executable,
        tuple(sorted(_import_env(env).items())),
        tuple((file.st_mtime_ns, file.st_size) for file in files),
    )


def _import_env(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_IMPORT)
        and not name.startswith(_READ_BY_EACH_RANK)
        and name not in _NO_CALLER
    }
