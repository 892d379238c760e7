"""Install the course into a virtual environment, or say in one message why that is not possible.

    python3 tools/install.py [--venv .venv] [--dev] [--python P] [--torch V] [--cpu 1]

`make` runs this before every target; venv and pip (uv for the build without CUDA) do the work. A
record in the environment says what it holds. It is written before and after an installation, so
that one which was interrupted is noticed and made again. Any Python from 3.6 can read this file, so
that a wrong one gets a sentence instead of a syntax error.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, TextIO, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, TOO_NEW = (3, 11), (3, 14)  # as requires-python in pyproject.toml
CANDIDATES = ["python3", "python3.13", "python3.12", "python3.11", "python"]
MODULES = ["torch", "torchvision", "jupyterlab", "ipykernel", "ipywidgets", "matplotlib", "sklearn"]
DEV_MODULES = ["pytest", "xdist", "nbclient", "jupytext", "ruff", "mypy"]
LOG = os.path.join("build", "install.log")

# Measured on Linux x86-64 with torch 2.14.1: 6 GB installed and 3 GB of wheels while it installs.
# The build without CUDA: from the size of its wheel, not measured.
ROOM_GB, ROOM_CPU_GB, ROOM_UPDATE_GB = 9.0, 3.0, 1.0

PROBE = """
import importlib.util, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(sys.version_info[0], sys.version_info[1], 64 if sys.maxsize > 2**32 else 32, *missing)
"""
NO_ROOM = "No space left|Errno 28|os error 28|Disk quota exceeded"
NO_NETWORK = (
    "NewConnectionError|NameResolutionError|TimeoutError|ProxyError|ProtocolError|SSLError"
    "|Connection(ResetError| refused)|Network is unreachable|name resolution|dns error"
    "|error sending request|Failed to fetch|CERTIFICATE_VERIFY_FAILED|peer certificate"
)


class Problem(Exception):
    """Why the course cannot be set up: what happened, the likely cause, what to do."""

    def __init__(self, what: str, cause: str, action: str) -> None:
        super().__init__(
            "What happened: {}\nLikely cause:  {}\nWhat to do:    {}".format(what, cause, action)
        )


Python = NamedTuple(
    "Python", [("path", str), ("version", Tuple[int, int]), ("bits", int), ("lacks", List[str])]
)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Install the course into a virtual environment.")
    parser.add_argument("--venv", default=".venv", help="the folder, beside pyproject.toml")
    parser.add_argument("--python", default="", help="the Python to build on; default: found")
    parser.add_argument("--torch", default="", help="this version; default: the one tested")
    parser.add_argument("--cpu", default="", choices=["", "0", "1"], help="1: torch without CUDA")
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    given = parser.parse_args(arguments)
    try:
        os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
        with open(os.path.join(ROOT, "build", "install.lock"), "w") as lock:
            _wait_for_turn(lock)
            install(given)
    except (Problem, OSError) as error:
        problem = error if isinstance(error, Problem) else explain(str(error), 1)
        print("\nThe course could not be set up.\n{}".format(problem), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again: it starts over.", file=sys.stderr)
        return 130
    return 0


def install(given: argparse.Namespace) -> None:
    """Make the environment what was asked for; where it is so already, do nothing."""
    venv = os.path.join(ROOT, given.venv)
    before = _read(venv)
    cpu = bool(before.get("cpu")) if given.cpu == "" else given.cpu == "1"
    wanted = {"root": ROOT, "torch": given.torch, "cpu": cpu}  # type: Dict[str, Any]
    wanted["dev"] = given.dev or bool(before.get("dev"))
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        wanted["project"] = hashlib.sha256(file.read()).hexdigest()
    reason = why_anew(venv, before, cpu)
    if reason is None and before == dict(wanted, whole=True):
        return
    with open(os.path.join(ROOT, LOG), "w", encoding="utf-8") as log:
        if reason is not None:
            base = choose_python(given.python)
            if os.path.lexists(venv):
                print("Making {} again: {}.".format(given.venv, reason))
            title = "Making {} with Python {}.{}".format(given.venv, *base.version)
            _run(log, title, [base.path, "-m", "venv", "--clear", venv])
        _check_room(ROOM_UPDATE_GB if reason is None else ROOM_CPU_GB if cpu else ROOM_GB, cpu)
        _write(venv, dict(wanted, whole=False))
        _fill(log, _python(venv), wanted)
    python = probe(_python(venv), _modules(wanted))
    if python is None or python.lacks:
        raise Problem(
            "after the installation these are missing: {}.".format(
                ", ".join(python.lacks if python else ["python"])
            ),
            "pip was told to put packages elsewhere, or files were removed meanwhile.",
            "look into {}, then the same command again.".format(LOG),
        )
    _write(venv, dict(wanted, whole=True))


def why_anew(venv: str, record: Dict[str, Any], cpu: bool) -> Optional[str]:
    """Why the folder has to be made from nothing, or None where pip can go on in it."""
    if not os.path.lexists(venv):
        return "there is none"
    if record.get("whole") is False:
        return "its installation was not finished"
    python = probe(_python(venv), _modules(record) if record else ["pip"])
    if python is None:
        return "its Python does not run"
    if not OLDEST <= python.version < TOO_NEW:
        return "its Python is {}.{}".format(*python.version)
    if python.lacks:
        return "packages are missing from it"
    if record and record.get("root") != ROOT:
        return "the project has moved"
    if record and record.get("cpu") != cpu:
        return "it holds the other build of torch"
    return None


def choose_python(name: str) -> Python:
    """The interpreter to build on: the one asked for, or the first right one on PATH."""
    tried = [probe(each, ["venv", "ensurepip"]) for each in ([name] if name else CANDIDATES)]
    found = [python for python in tried if python]
    right = [p for p in found if OLDEST <= p.version < TOO_NEW and p.bits == 64]
    for python in right:
        if not python.lacks:
            return python
    if right:
        raise Problem(
            "{} cannot make a virtual environment.".format(right[0].path),
            "its module {} is missing; Debian and Ubuntu ship it as a package of its own.".format(
                " and ".join(right[0].lacks)
            ),
            "sudo apt-get install python{}.{}-venv, then the same command again.".format(
                *right[0].version
            ),
        )
    seen = ["{} is Python {}.{} ({}-bit)".format(p.path, *p.version, p.bits) for p in found]
    raise Problem(
        "no fitting Python: the course needs Python 3.11, 3.12 or 3.13 (64-bit).",
        "; ".join(seen) or "{} does not run here".format(name or "python3"),
        "install one (Debian, Ubuntu: python3.12 and python3.12-venv; macOS: brew install "
        "python@3.12),\n               or name it: make lab PYTHON=/path/to/python3.12",
    )


def probe(path: str, modules: List[str]) -> Optional[Python]:
    """What an interpreter is and which modules it lacks; None where it does not run."""
    try:
        answer = subprocess.run(
            [path, "-c", PROBE, *modules],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            universal_newlines=True,
            cwd=os.path.join(ROOT, "tools"),  # where no folder is taken for a package
            timeout=30,
        )
        major, minor, bits, *lacks = answer.stdout.split()
        return Python(path, (int(major), int(minor)), int(bits), lacks)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def tested_pair(version: Tuple[int, int]) -> Tuple[str, str]:
    """The newest torch and torchvision that pyproject.toml calls tested for that Python.

    For a Python without a pair of its own they are those of the last pair.
    """
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        line = r'python = "(\d+)\.(\d+)", torch = "(.+?)", torchvision = "(.+?)"'
        pairs = re.findall(line, file.read())
    mine = [pair for pair in pairs if pair[:2] == tuple(map(str, version))]
    return (mine or pairs)[-1][2:]


def explain(log: str, code: int) -> Problem:
    """Turn what a failed pip or uv said into one message."""
    log = "\n".join(log.splitlines()[-60:])  # a download that was tried again is no failure
    if re.search(NO_ROOM, log):
        return Problem(
            "the disk is full.",
            "torch and its CUDA libraries need about {:.0f} GB on the way in.".format(ROOM_GB),
            "make room, or take the build without CUDA ({:.0f} GB): make lab CPU=1".format(
                ROOM_CPU_GB
            ),
        )
    if re.search(NO_NETWORK, log):
        return Problem(
            "the packages could not be downloaded.",
            "no network, or a proxy or firewall between here and the package server.",
            "connect (behind a proxy: set HTTPS_PROXY; where it signs connections itself: PIP_CERT "
            "and\n               SSL_CERT_FILE), then the same command again. Details: " + LOG,
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no output"]
    errors = [line for line in lines if line.lower().startswith(("error", "×"))]
    return Problem(
        "the installation failed (exit code {}): {}".format(code, (errors or lines[-1:])[0][:200]),
        "it was ended from outside, or by lack of memory."
        if code < 0
        else "it says more in " + LOG,
        "remove the cause, then the same command again: it starts over.",
    )


def _check_room(need: float, cpu: bool) -> None:
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < need:
        offer = not cpu and need > ROOM_CPU_GB and free > ROOM_CPU_GB
        raise Problem(
            "not enough room on the disk of {}: {:.1f} GB free.".format(ROOT, free),
            "the installation needs about {:.0f} GB, part of it only on the way in.".format(need),
            "make room" + (", or take the build without CUDA: make lab CPU=1" if offer else "."),
        )


def _fill(log: TextIO, python: str, wanted: Dict[str, Any]) -> None:
    """Let pip or uv install the course, with the torch asked for or the tested pair."""
    version = probe(python, [])
    torch, torchvision = tested_pair(version.version if version else OLDEST)
    what = ["-e", ".[dev]" if wanted["dev"] else "."]
    what += ["torch==" + (wanted["torch"] or torch)]
    what += [] if wanted["torch"] else ["torchvision==" + torchvision]
    pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    pip += ["--disable-pip-version-check"]
    if not wanted["cpu"]:
        _run(log, "Installing the course (3 GB the first time, some minutes)", pip + what)
        return
    _run(log, "Installing uv", [*pip, "uv"])
    uv = [python, "-m", "uv", "pip", "install", "--python", python, "--torch-backend", "cpu"]
    _run(log, "Installing the course with torch without CUDA", uv + what)


def _run(log: TextIO, title: str, command: List[str]) -> None:
    """Run one step; its output goes to the log, and on a terminal through one line."""
    print("{} …".format(title), flush=True)
    elsewhere = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    environment["TMPDIR"] = os.path.join(ROOT, "build", "tmp")  # /tmp may be small
    os.makedirs(environment["TMPDIR"], exist_ok=True)
    said = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or []:
                said.append(line)
                log.write(line)
                _show(line)
        except BaseException:
            process.kill()
            raise
    _show("")
    if process.returncode != 0:
        raise explain("".join(said), process.returncode)


def _show(line: str) -> None:
    """Show what pip says, in one line of a terminal; an empty one wipes it."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 3
        print("\r\033[K" + line.strip()[:width], end="", flush=True)


def _wait_for_turn(lock: TextIO) -> None:
    """One installation at a time in one project; a second one waits."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("Another `make` is installing in this folder; waiting for it …", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _modules(record: Dict[str, Any]) -> List[str]:
    return MODULES + ["ddp_course"] + (DEV_MODULES if record.get("dev") else [])


def _python(venv: str) -> str:
    return os.path.join(venv, "bin", "python")


def _read(venv: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(venv, "ddp-course.json")) as file:
            record = json.load(file)
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(venv: str, record: Dict[str, Any]) -> None:
    with open(os.path.join(venv, "ddp-course.json"), "w") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
