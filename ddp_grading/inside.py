"""The grader's one process inside a sandbox: it keeps a warm host and starts launches in it.

    it → {"ready": true}
    it ← {"run": {"env": …, "ranks": …, "restarts": …, "script": …, "arguments": …}}
    it → {"exit": status, "codes": {rank: exit code}, "log": the end of torchrun's log}
    it ← {"stacks": true}                                      make every rank say where it is, end
    it → {"stacks": {rank: the end of what it printed}}

Lines of JSON over a Unix socket. What it says decides no verdict: as soon as a submission has run
here, nothing in the sandbox is trusted. Standard library only; the warm host imports torch.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ddp_course.process import warm

RUN = "/tmp/run"
# Of each process. Not NPROC, which counts a user's processes anywhere, and not AS: torch reserves
# far more addresses than memory.
LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_CPU: 90,  # seconds
    resource.RLIMIT_DATA: 3 << 30,
    resource.RLIMIT_FSIZE: 8 << 20,  # bytes of a file, so of what a rank prints, too
    resource.RLIMIT_NOFILE: 256,
}
TAIL_BYTES = 16_384
_STACKS_S = 1.5  # for the ranks to print where they are


def main(address: str) -> None:
    for limit, value in LIMITS.items():
        resource.setrlimit(limit, (value, value))
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        warm.host({**os.environ, **_launch_env("", {})})
        _tell(line, ready=True)
        buffer = b""
        while piece := line.recv(65536):
            *messages, buffer = (buffer + piece).split(b"\n")
            for message in messages:
                request = json.loads(message)
                if "run" in request:
                    _run(line, **request["run"])


def _launch_env(folder: str, given: dict[str, str]) -> dict[str, str]:
    return {
        "PYTHONFAULTHANDLER": "1",
        "PET_LOG_DIR": f"{folder}/logs",
        "PET_REDIRECTS": "3",
        "PET_SHUTDOWN_TIMEOUT": "1",
        "PET_MONITOR_INTERVAL": "0.02",
        "DDP_COURSE_RUN": folder,
        **given,
    }


def _run(
    line: socket.socket,
    env: dict[str, str],
    ranks: int,
    restarts: int,
    script: str,
    arguments: list[str],
) -> None:
    """One launch, from the request to its end; then the scratch is as it was before."""
    os.makedirs(RUN)
    full = {**os.environ, **_launch_env(RUN, env)}
    torchrun = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    if restarts:
        torchrun.append(f"--max-restarts={restarts}")
        full["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # as launcher.py does
    request: dict[str, Any] = {
        "env": full,
        "ranks": ranks,
        "nodes": 1,
        "cwd": "/tmp",
        "log": f"{RUN}/torchrun.log",
        "torchrun_args": torchrun,
        "rank_words": [script, *arguments],
    }
    with warm.connect(full, request) as link:
        status, codes = _watch(line, link, ranks)
    log = _tail(Path(RUN, "torchrun.log"))
    for folder in ("/tmp", "/dev/shm"):
        _empty(folder, _mounts())
    _tell(line, exit=status, codes=codes, log=log)


def _mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4].encode().decode("unicode_escape") for line in lines]


def _empty(folder: str, mounts: list[str]) -> None:
    """Remove what lies in a folder, but not what is mounted there, such as Python itself."""
    for entry in os.scandir(folder):
        if entry.path in mounts:
            continue
        if any(mount.startswith(f"{entry.path}/") for mount in mounts):
            _empty(entry.path, mounts)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _watch(
    line: socket.socket, link: socket.socket, ranks: int
) -> tuple[int | None, dict[int, int]]:
    """The launch's wait status, None if its host has gone, and the last exit code of each rank."""
    buffer, codes = b"", dict[int, int]()
    while True:
        readable, _, _ = select.select([line, link], [], [])
        if link in readable:
            try:
                piece = link.recv(65536)
            except OSError:
                piece = b""
            if not piece:
                return None, codes
            *messages, buffer = (buffer + piece).split(b"\n")
            for message in map(json.loads, messages):
                if "status" in message:
                    codes[message["rank"]] = os.waitstatus_to_exitcode(message["status"])
                if "exit" in message:
                    return int(message["exit"]), codes
        if line in readable:
            asked = line.recv(65536)
            if not asked:
                sys.exit(0)
            _stacks(line, link, ranks)
            link.sendall(b'{"stop": true}\n')


def _stacks(line: socket.socket, link: socket.socket, ranks: int) -> None:
    for rank in range(ranks):
        for number in (signal.SIGABRT, signal.SIGCONT):
            link.sendall(json.dumps({"rank": rank, "signal": int(number)}).encode() + b"\n")
    time.sleep(_STACKS_S)
    found = {path.parent.name: _tail(path) for path in Path(RUN).glob("logs/*/*/*/stderr.log")}
    _tell(line, stacks=found)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _tell(line: socket.socket, **message: Any) -> None:
    line.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
