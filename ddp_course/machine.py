"""What this machine is, whether the course can run on it, and what it can prove.

`doctor()` looks and judges. `Facts` is what was seen and `judge` turns it into a `Report`, so that
every verdict can be tested on machines that we do not have.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ddp_course.errors import CannotRun
from ddp_course.show.document import Document, Fold, Note, Shown, Table, Title

PYTHONS = ((3, 11), (3, 14))  # from, below: as requires-python in pyproject.toml
TORCHES = ((2, 14, 1), (2, 16))  # as the requirement of torch in pyproject.toml

Status = Literal["ok", "note", "problem"]
_SIGN = {"ok": "✓", "note": "!", "problem": "✗"}

_ASK_TORCH = """
import json, torch, torch.distributed as dist
cuda = torch.cuda
gpus = [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else []
backends = {name: getattr(dist, f"is_{name}_available")() for name in ("gloo", "nccl", "mpi")}
print(json.dumps({"gpus": gpus, "backends": backends}))
"""


@dataclass(frozen=True)
class Name:
    """How a host name resolves: its address, or None, and the time that took."""

    address: str | None
    seconds: float


@dataclass(frozen=True)
class Facts:
    """What was seen on a machine. None where there was nothing to see."""

    python: tuple[int, int, int]
    executable: str
    torch: str | None
    torchvision: str | None
    torch_error: str = ""  # the last line, where `import torch` failed
    gpus: tuple[str, ...] = ()
    backends: dict[str, bool] = field(default_factory=dict)
    cores: int = 1
    memory_gb: float | None = None
    shm_gb: float | None = None
    disk_gb: float | None = None
    loopback_error: str = ""
    names: dict[str, Name] = field(default_factory=dict)  # "localhost" and the host's own
    can_fork: bool = True
    system: str = "linux"  # sys.platform


@dataclass(frozen=True)
class Row:
    """One line of the report. A `problem` stops the course; a `note` does not."""

    name: str
    value: str
    status: Status = "ok"
    remedy: str = ""


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """What `doctor` found: `ok` if the course can run here. short: all in one line where it can."""

    rows: tuple[Row, ...]
    proves: str
    short: bool = False

    @property
    def ok(self) -> bool:
        return all(row.status != "problem" for row in self.rows)

    @property
    def verdict(self) -> str:
        problems = sum(row.status == "problem" for row in self.rows)
        if problems == 0:
            return "The course can run on this machine."
        return f"The course cannot run yet: {problems} problem{'s' * (problems > 1)} to solve."

    def document(self) -> Document:
        cells = [
            (_SIGN[row.status], row.name, row.value + (row.remedy and f"  → {row.remedy}"))
            for row in self.rows
        ]
        if self.short and self.ok:
            return Document(Fold(self.line, Table((), cells), self.proves, plain=(self.verdict,)))
        return Document(Title(self.verdict), Table((), cells), Note(self.proves))

    @property
    def line(self) -> str:
        """What a result depends on: "✓ torch 2.15.0, Python 3.11.2, CPU only, 2 cores"."""
        value = {row.name: row.value for row in self.rows}
        python = value["Python"].split()[0]
        where = f"{value['devices']}, {value['cores']} cores"
        return f"✓ torch {value['torch']}, Python {python}, {where}"


def doctor(*, short: bool = False, fresh: bool = False) -> Report:
    """Look at this machine and judge it.

    short: one line, that opens to all of it, unless there is a problem.
    fresh: import torch to ask it, for some seconds, also if it has answered since this machine
    started and is still the same.
    """
    return replace(judge(look(fresh=fresh)), short=short)


def judge(facts: Facts) -> Report:
    """Turn what was seen into a report; pure."""
    rows = (
        *_system(facts),
        _python(facts),
        _torch(facts),
        _torchvision(facts),
        Row("devices", ", ".join(facts.gpus) or "CPU only"),
        _backends(facts),
        _cores(facts),
        _memory(facts),
        _loopback(facts),
        *(_name(name, found) for name, found in facts.names.items()),
        _shared_memory(facts),
        _disk(facts),
        _warm_start(facts),
        _sandbox(),
    )
    return Report(rows, proves(len(facts.gpus)))


def proves(gpus: int) -> str:
    """What a machine with so many GPUs shows, and what it cannot."""
    if gpus == 0:
        return (
            "Without a GPU this machine proves correctness, the pattern of communication and the "
            "behaviour of processes: every lesson runs, on the CPU with Gloo. It cannot show the "
            "speed of GPUs or NCCL."
        )
    if gpus == 1:
        return (
            "With one GPU this machine proves device code too: one rank runs on it with NCCL. More "
            "ranks run on the CPU with Gloo, so it cannot show scaling over GPUs."
        )
    return (
        f"With {gpus} GPUs this machine proves speed too: up to {gpus} ranks run on a GPU of "
        "their own with NCCL; more ranks run on the CPU with Gloo."
    )


def look(*, fresh: bool = False) -> Facts:
    """See what there is. Imports no torch here: a short process of its own answers for it, once."""
    answer, torch_error = _ask_torch_once(fresh)
    return Facts(
        python=sys.version_info[:3],
        executable=sys.executable,
        torch=_version("torch"),
        torchvision=_version("torchvision"),
        torch_error=torch_error,
        gpus=tuple(answer.get("gpus", [])),
        backends=answer.get("backends", {}),
        cores=_count_cores(),
        memory_gb=_free_memory_gb(),
        shm_gb=_free_gb(Path("/dev/shm")),
        disk_gb=_free_gb(Path(os.environ.get("DDP_COURSE_RUNS", "."))) or _free_gb(Path(".")),
        loopback_error=_try_loopback(),
        names={name: resolve(name) for name in dict.fromkeys(["localhost", socket.gethostname()])},
        can_fork=sys.platform == "linux" and hasattr(os, "fork"),
        system=sys.platform,
    )


def resolve(name: str, *, limit_s: float = 3.0) -> Name:
    """Resolve a host name as torch does (getaddrinfo), but wait no longer than the limit."""
    found: list[str] = []

    def ask() -> None:
        try:
            found.append(str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]))
        except OSError:
            return

    start = time.monotonic()
    thread = threading.Thread(target=ask, daemon=True, name=f"resolve {name}")
    thread.start()
    thread.join(limit_s)
    return Name(found[0] if found else None, time.monotonic() - start)


def _system(facts: Facts) -> list[Row]:
    if facts.system != "win32":
        return []
    error = not_on_windows()
    return [Row("system", f"Windows: {error.cause}", "problem", error.action)]


def not_on_windows() -> CannotRun:
    """Why the course does not start under Windows itself."""
    return CannotRun(
        "The course does not run under Windows itself.",
        cause="torchrun's store needs libuv, which PyTorch's Windows packages lack, and there is "
        "no signal that ends a rank with all that it has started",
        action="use WSL2: `wsl --install`, then follow the README in its shell",
    )


def _python(facts: Facts) -> Row:
    value = f"{'.'.join(map(str, facts.python))}  {facts.executable}"
    if PYTHONS[0] <= facts.python < PYTHONS[1]:
        return Row("Python", value)
    return Row("Python", value, "problem", "the course needs Python 3.11, 3.12 or 3.13: make setup")


def _torch(facts: Facts) -> Row:
    if facts.torch is None:
        return Row("torch", "not installed in this Python", "problem", "make setup")
    if facts.torch_error:
        value = f"{facts.torch}, but it cannot be imported: {facts.torch_error}"
        return Row("torch", value, "problem", "rm -rf .venv, then make setup")
    version = _numbers(facts.torch)
    if version < TORCHES[0]:
        return Row("torch", facts.torch, "problem", "the course needs torch 2.14.1: make setup")
    if version >= TORCHES[1]:
        return Row("torch", facts.torch, "note", "newer than what the course is tested with")
    return Row("torch", facts.torch)


def _torchvision(facts: Facts) -> Row:
    if facts.torchvision is None:
        return Row("torchvision", "not installed in this Python", "problem", "make setup")
    return Row("torchvision", facts.torchvision)


def _backends(facts: Facts) -> Row:
    value = ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in facts.backends.items())
    if facts.backends.get("gloo"):
        return Row("backends", value)
    remedy = "this torch was built without Gloo: rm -rf .venv, then make setup"
    return Row("backends", value or "unknown", "problem", remedy)


def _cores(facts: Facts) -> Row:
    if facts.cores > 1:
        return Row("cores", str(facts.cores))
    return Row("cores", "1", "note", "ranks take turns on one core: right results, no speed-up")


def _memory(facts: Facts) -> Row:
    if facts.memory_gb is None:
        return Row("memory free", "unknown on this system")
    value = f"{facts.memory_gb:.1f} GB"
    if facts.memory_gb < 1:
        return Row("memory free", value, "problem", "close other programs: 2 ranks need about 1 GB")
    if facts.memory_gb < 3:
        return Row("memory free", value, "note", "enough for 2 ranks; 4 plain ones need about 3 GB")
    return Row("memory free", value)


def _loopback(facts: Facts) -> Row:
    if not facts.loopback_error:
        return Row("loopback", "127.0.0.1 answers")
    remedy = "bring the loopback interface up: sudo ip link set lo up"
    return Row("loopback", facts.loopback_error, "problem", remedy)


def _name(name: str, found: Name) -> Row:
    """torchrun --standalone needs localhost. The launcher never uses the host's own name."""
    label = f"name {name}"
    needed = name == "localhost"
    if found.address is None:
        remedy = f"add to /etc/hosts: 127.0.0.1 {name}"
        remedy += "" if needed else " (launches here do without; a plain torchrun may not)"
        return Row(label, "does not resolve", "problem" if needed else "note", remedy)
    value = f"{found.address} in {1000 * found.seconds:.0f} ms"
    if found.seconds > 1:
        return Row(label, value, "note", f"slow; to answer at once, add to /etc/hosts: {name}")
    return Row(label, value)


def _shared_memory(facts: Facts) -> Row:
    if facts.shm_gb is None:
        return Row("/dev/shm", "none on this system")
    value = f"{facts.shm_gb:.2g} GB free"
    if facts.shm_gb < 0.25:
        remedy = "small for DataLoader workers; in Docker: docker run --shm-size=1g"
        return Row("/dev/shm", value, "note", remedy)
    return Row("/dev/shm", value)


def _disk(facts: Facts) -> Row:
    if facts.disk_gb is None:
        return Row("room for runs", "unknown")
    value = f"{facts.disk_gb:.1f} GB"
    if facts.disk_gb < 0.05:
        return Row("room for runs", value, "problem", "make room: each run writes its output")
    if facts.disk_gb < 1:
        return Row("room for runs", value, "note", "traced runs write some MB each")
    return Row("room for runs", value)


def _warm_start(facts: Facts) -> Row:
    if facts.can_fork:
        return Row("warm start", "possible")
    return Row("warm start", "not on this system", "note", "every launch is a plain torchrun: slow")


def _sandbox() -> Row:
    return Row("sandbox", "only for grading others' work: doctor --grading tries it")


def _ask_torch_once(fresh: bool) -> tuple[dict[str, Any], str]:
    """What torch answers, kept beside the runs until it, the devices or this boot are others."""
    if sys.platform == "win32":
        return _ask_torch()
    from ddp_course import disk  # not on Windows, where this report is all that there is
    from ddp_course.run.folder import runs_folder

    kept, asked_of = runs_folder() / "torch.json", _torch_here()
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found = disk.read_json(kept)
        if not fresh and found["of"] == asked_of:
            return dict(found["answer"]), ""
    answer, error = _ask_torch()
    if not error:
        with contextlib.suppress(OSError):  # then it is asked again
            kept.parent.mkdir(parents=True, exist_ok=True)
            disk.write(kept, json.dumps({"of": asked_of, "answer": answer}))
    return answer, error


def _torch_here() -> list[Any]:
    """What torch's answer depends on, as far as it shows without an import."""
    spec = importlib.util.find_spec("torch")
    found = (
        [] if spec is None or spec.origin is None else [Path(spec.origin).with_name("version.py")]
    )
    found += [Path("/proc/sys/kernel/random/boot_id"), *Path("/dev").glob("nvidia*")]
    seen: list[Any] = [sys.executable, _version("torch"), os.environ.get("CUDA_VISIBLE_DEVICES")]
    for path in sorted(found):
        with contextlib.suppress(OSError):
            text = path.read_text() if path.name == "boot_id" else path.stat().st_mtime_ns
            seen.append([str(path), text])
    return seen


def _ask_torch() -> tuple[dict[str, Any], str]:
    """What needs an `import torch` to know, or the last line of why that failed."""
    command = [sys.executable, "-W", "ignore", "-c", _ASK_TORCH]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return {}, "import torch took more than two minutes"
    if ended.returncode != 0:
        said = [line for line in ended.stderr.splitlines() if line.strip()]
        return {}, said[-1].strip() if said else f"exit code {ended.returncode}"
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer, ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.15.0+cpu gives (2, 15, 0)."""
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def _count_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_memory_gb() -> float | None:
    if platform.system() != "Linux":
        return None
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1e6  # kB
    return None


def _free_gb(folder: Path) -> float | None:
    try:
        return shutil.disk_usage(folder).free / 1e9
    except OSError:
        return None


def _try_loopback() -> str:
    """Empty if a socket on 127.0.0.1 can be reached, else what went wrong."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=3),
        ):
            return ""
    except OSError as error:
        return f"127.0.0.1 cannot be reached: {error}"
