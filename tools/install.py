"""Install the course into a virtual environment, or say in one message why it cannot be done.

    python3 tools/install.py --venv .venv [--dev] [--python P] [--torch V] [--cpu 1]

`make` runs this before every target. With nothing to do it reads one stamp and returns. It uses the
standard library only, and no syntax newer than Python 3.6, so that a wrong Python gets a sentence
instead of a syntax error.

The stamp is written last. A marker stands while an installation is under way, so that one which was
interrupted is told from one that is whole, and made again.
"""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, TOO_NEW = (3, 11), (3, 14)  # as requires-python in pyproject.toml
CANDIDATES = ["python3", "python3.13", "python3.12", "python3.11", "python"]

# Measured on Linux x86-64 with torch 2.14.1: 6 GB installed and 3 GB of wheels while it installs.
# The CPU-only build: from its published wheel size, not measured.
ROOM_GB = {"default": 9.0, "cpu": 3.0, "update": 1.0}

STAMP, MARKER, LOG = "ddp-course.json", "installing", "install.log"
MODULES = ["torch", "torchvision", "jupyterlab", "ipykernel", "ipywidgets", "matplotlib", "sklearn"]
DEV_MODULES = ["pytest", "nbclient", "jupytext", "ruff", "mypy"]

PROBE = """
import struct, sys
lacks = []
for name in ("venv", "ensurepip"):
    try:
        __import__(name)
    except ImportError:
        lacks.append(name)
version, bits = "%d.%d.%d" % sys.version_info[:3], 8 * struct.calcsize("P")
print("%s %d %s" % (version, bits, ",".join(lacks)))
"""

FIND = """
import importlib.util, json, sys
specs = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: spec.origin if spec else None for name, spec in specs.items()}))
"""

# What pip and uv print, and what it means. The first that is found in the log is reported.
NO_ROOM = ["No space left on device", "[Errno 28]", "Disk quota exceeded", "os error 28"]
NO_CERTIFICATE = [
    "CERTIFICATE_VERIFY_FAILED",
    "SSLCertVerificationError",
    "invalid peer certificate",
]
NO_NETWORK = [
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "ProtocolError",
    "ConnectionResetError",
    "Connection refused",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "dns error",
    "error sending request",
    "Failed to fetch",
]
NO_MATCH = ["No matching distribution found", "No solution found", "ResolutionImpossible"]
NO_PERMISSION = ["Permission denied", "[Errno 13]", "Read-only file system"]


Record = Dict[str, Any]


class Problem(Exception):
    """Why the course cannot be set up: what happened, the likely cause, what to do."""

    def __init__(self, what: str, cause: str, action: str) -> None:
        super().__init__(
            "What happened: {}\nLikely cause:  {}\nWhat to do:    {}".format(what, cause, action)
        )


class Wish(NamedTuple):
    """What the caller asked for. `cpu` is None where the build that is there may stay."""

    venv: str
    python: str
    torch: str
    cpu: Optional[bool]
    dev: bool


class Python(NamedTuple):
    """What an interpreter says of itself."""

    path: str
    version: Tuple[int, ...]
    bits: int
    lacks: List[str]

    @property
    def text(self) -> str:
        return ".".join(str(part) for part in self.version)

    @property
    def in_range(self) -> bool:
        return OLDEST <= self.version[:2] < TOO_NEW and self.bits == 64


def main(arguments: Optional[List[str]] = None) -> int:
    wish = _wish(arguments)
    try:
        if not is_ready(wish):
            with _alone():
                if not is_ready(wish):
                    install(wish)
    except Problem as problem:
        print("\nThe course could not be set up.\n{}".format(problem), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again: it starts over.", file=sys.stderr)
        return 130
    return 0


def _wish(arguments: Optional[List[str]]) -> Wish:
    parser = argparse.ArgumentParser(description="Install the course into a virtual environment.")
    parser.add_argument("--venv", default=".venv", help="the folder, beside pyproject.toml")
    parser.add_argument("--python", default="", help="the Python to build on; default: found")
    parser.add_argument("--torch", default="", help="this version of torch; default: the newest")
    parser.add_argument("--cpu", default="", choices=["", "0", "1"], help="1: torch without CUDA")
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    given = parser.parse_args(arguments)
    cpu = None if given.cpu == "" else given.cpu == "1"
    return Wish(os.path.join(ROOT, given.venv), given.python, given.torch, cpu, given.dev)


def is_ready(wish: Wish) -> bool:
    """Whether the environment holds what was asked for. Costs milliseconds."""
    stamp = _read(wish.venv, STAMP)
    return (
        stamp.get("root") == ROOT
        and stamp.get("project") == _project()
        and stamp.get("torch") == wish.torch
        and (wish.cpu is None or stamp.get("cpu") == wish.cpu)
        and (bool(stamp.get("dev")) or not wish.dev)
        and all(os.path.exists(path) for path in stamp.get("files", []))
        and _runs(wish.venv)
    )


def install(wish: Wish) -> None:
    """Make or repair the environment, install into it, and stamp it. Raises Problem."""
    stamp = _read(wish.venv, STAMP)
    before = stamp or _read(wish.venv, MARKER)
    cpu = bool(before.get("cpu")) if wish.cpu is None else wish.cpu
    record = {"root": ROOT, "project": _project(), "torch": wish.torch, "cpu": cpu}
    record["dev"] = wish.dev or bool(before.get("dev"))
    reason = _unsound(wish, stamp)
    base = None
    if reason is not None:
        base = choose_python(wish)
        if os.path.lexists(wish.venv):
            print("Making {} again: {}.".format(_name(wish.venv), reason))
            _remove(wish.venv)
    _check_room(wish, cpu)
    with _own_writes():
        os.makedirs(wish.venv, exist_ok=True)
        _write(wish.venv, MARKER, record)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(wish.venv, STAMP))
    if base is not None:
        title = "Making {} with Python {}".format(_name(wish.venv), base.text)
        _run(wish, title, [base.path, "-m", "venv", wish.venv])
    _fill(wish, record)
    record["files"] = _find_modules(wish, record)
    with _own_writes():
        _write(wish.venv, STAMP, record)
        os.remove(os.path.join(wish.venv, MARKER))


def choose_python(wish: Wish) -> Python:
    """The interpreter to build on: the one asked for, or the first right one on PATH."""
    seen = [(name, probe(name)) for name in ([wish.python] if wish.python else CANDIDATES)]
    right = [python for _, python in seen if python and python.in_range]
    whole = [python for python in right if not python.lacks]
    if whole:
        return whole[0]
    if right:
        version = ".".join(str(part) for part in right[0].version[:2])
        raise Problem(
            "{} (Python {}) cannot make a virtual environment.".format(
                right[0].path, right[0].text
            ),
            "its module {} is missing; Debian and Ubuntu ship it as a package of its own.".format(
                " and ".join(right[0].lacks)
            ),
            "sudo apt-get install python{}-venv, then the same command again.".format(version),
        )
    found = ["{} is Python {}".format(name, p.text) for name, p in seen if p and p.bits == 64]
    found += [
        "{} is a {}-bit Python".format(name, p.bits) for name, p in seen if p and p.bits != 64
    ]
    if wish.python and not found:
        found = ["PYTHON={} does not run here".format(wish.python)]
    raise Problem(
        "no fitting Python: the course needs Python 3.11, 3.12 or 3.13 (64-bit).",
        "; ".join(found) or "no Python is on PATH",
        "install one (Debian, Ubuntu: python3.12 and python3.12-venv; macOS: brew install "
        "python@3.12),\n               or name it: make lab PYTHON=/path/to/python3.12",
    )


def probe(name: str) -> Optional[Python]:
    """Ask an interpreter for its version; None where it does not run (such as an empty shim)."""
    try:
        answer = subprocess.run(
            [name, "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=30,
        )
        version, bits, lacks = (answer.stdout.strip() + " ").split(" ")[:3]
        parts = tuple(int(part) for part in version.split("."))
        return Python(name, parts, int(bits), [part for part in lacks.split(",") if part])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def explain(log: str, code: int, where: str) -> Problem:
    """Turn the log of a failed pip or uv into one message."""
    log = "\n".join(log.splitlines()[-60:])  # a download that was tried again is no failure
    again = "the same command again; it goes on from what is already in pip's cache."
    if _any(NO_ROOM, log):
        return Problem(
            "the disk is full.",
            "torch and its CUDA libraries need about {:.0f} GB on the way in.".format(
                ROOM_GB["default"]
            ),
            "make room, or take the build without CUDA ({:.0f} GB): make lab CPU=1".format(
                ROOM_GB["cpu"]
            ),
        )
    if _any(NO_CERTIFICATE, log):
        return Problem(
            "the package server's certificate was not accepted.",
            "a proxy or virus scanner of your network signs connections with its own certificate.",
            "set PIP_CERT (and SSL_CERT_FILE) to that certificate's file, then " + again,
        )
    if _any(NO_NETWORK, log):
        return Problem(
            "the packages could not be downloaded.",
            "no network, or a proxy or firewall between here and the package server.",
            "connect (behind a proxy: set HTTPS_PROXY), then " + again,
        )
    if _any(NO_MATCH, log):
        return Problem(
            "the package server has no fitting version: " + _telling(log),
            "this machine ({}) is of a kind for which it is not built, or a version was "
            "asked for that does not exist.".format(" ".join(_machine())),
            "check TORCH=… and your pip configuration; details: " + where,
        )
    if _any(NO_PERMISSION, log):
        return Problem(
            "a file could not be written: " + _telling(log),
            "this folder, or pip's cache, belongs to another user.",
            "use a copy of the project that you own; details: " + where,
        )
    if code < 0 or code in (137, 143):
        return Problem(
            "the installer was killed (signal {}).".format(-code if code < 0 else code - 128),
            "the machine ran out of memory, or someone ended it.",
            "close other programs, then " + again,
        )
    return Problem(
        "pip failed (exit code {}): {}".format(code, _telling(log)),
        "unknown; the whole log is in {}".format(where),
        "read its last lines; rm -rf {} starts from nothing.".format(os.path.dirname(where)),
    )


def _any(signs: List[str], log: str) -> bool:
    return any(sign in log for sign in signs)


def _telling(log: str) -> str:
    """The one line of a log that says most: the first error, or the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "×"))]
    line = (errors or lines[-1:] or ["no output"])[0]
    return line if len(line) <= 200 else line[:200] + "…"


def _machine() -> List[str]:
    return [os.uname().sysname, os.uname().machine] if hasattr(os, "uname") else [sys.platform]


def _unsound(wish: Wish, stamp: Record) -> Optional[str]:
    """Why the folder has to be made from nothing, or None where pip can go on in it."""
    if not os.path.lexists(wish.venv):
        return "there is none"
    if os.path.exists(os.path.join(wish.venv, MARKER)):
        return "its installation did not come to its end"
    python = probe(_python(wish.venv))
    if python is None:
        return "its Python does not run any more"
    if not python.in_range or "ensurepip" in python.lacks:
        return "its Python is {}".format(python.text)
    if stamp and stamp.get("root") != ROOT:
        return "the project has moved since"
    if stamp and wish.cpu is not None and stamp.get("cpu") != wish.cpu:
        return "it holds the other build of torch"
    if any(not os.path.exists(path) for path in stamp.get("files", [])):
        return "packages are missing from it"
    return None


def _remove(path: str) -> None:
    try:
        if os.path.islink(path) or os.path.isfile(path):
            os.remove(path)
        else:
            shutil.rmtree(path)
    except OSError as error:
        raise Problem(
            "{} cannot be removed: {}".format(_name(path), error),
            "it belongs to another user, or a program is using it.",
            "remove it by hand, then the same command again.",
        ) from None


def _check_room(wish: Wish, cpu: bool) -> None:
    torch = glob.glob(os.path.join(wish.venv, "lib", "python3*", "site-packages", "torch"))
    need = ROOM_GB["update" if torch else "cpu" if cpu else "default"]
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < need:
        action = "make room"
        if not cpu and not torch and free > ROOM_GB["cpu"]:
            action += ", or take the build without CUDA ({:.0f} GB): make lab CPU=1".format(
                ROOM_GB["cpu"]
            )
        raise Problem(
            "not enough room on the disk of {}: {:.1f} GB free.".format(ROOT, free),
            "the installation needs about {:.0f} GB, part of it only on the way in.".format(need),
            action + ". Nothing was changed.",
        )


def _fill(wish: Wish, record: Record) -> None:
    python = _python(wish.venv)
    what = ["-e", ".[dev]" if record["dev"] else "."]
    if wish.torch:
        what.append("torch==" + wish.torch)
    pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    pip += ["--disable-pip-version-check", "--retries", "3"]
    if record["cpu"]:
        _run(wish, "Installing uv", [*pip, "uv"])
        uv = [python, "-m", "uv", "pip", "install", "--python", python, "--torch-backend", "cpu"]
        _run(wish, "Installing the course with the CPU-only torch", uv + what)
        return
    _run(wish, "Installing the course (3 GB the first time, some minutes)", pip + what)


def _run(wish: Wish, title: str, command: List[str]) -> None:
    """Run one step; its output goes to the log, one line of progress to a terminal."""
    where = os.path.join(wish.venv, LOG)
    scratch = os.path.join(wish.venv, "tmp")  # not /tmp, which may be small
    print("{} …".format(title), flush=True)
    lines = []  # type: List[str]
    try:
        os.makedirs(scratch, exist_ok=True)
        with open(where, "a", encoding="utf-8") as log:
            log.write("$ {}\n".format(" ".join(command)))
            with _started(command, scratch) as process:
                for line in process.stdout or []:
                    lines.append(line)
                    log.write(line)
                    _progress(line)
            code = process.returncode
    except OSError as error:
        lines.append("{}: {}".format(command[0], error))
        code = 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if code != 0:
        raise explain("".join(lines), code, _name(where))


@contextlib.contextmanager
def _started(command: List[str], scratch: str) -> "Iterator[subprocess.Popen[str]]":
    """A running command and its output; ended here if it has not ended by itself."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
    _progress("")


def _progress(line: str) -> None:
    """Show what pip is at, in one line of a terminal; an empty line wipes it."""
    words = line.split()
    if not sys.stdout.isatty():
        return
    if words and words[0] in ("Collecting", "Downloading", "Installing", "Building", "Using"):
        width = shutil.get_terminal_size().columns - 3
        sys.stdout.write("\r\033[K  " + " ".join(words)[:width])
    elif not words:
        sys.stdout.write("\r\033[K")
    sys.stdout.flush()


def _environment(scratch: str) -> Dict[str, str]:
    """The caller's, less what would send packages elsewhere."""
    unwanted = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return dict(kept, TMPDIR=scratch, PYTHONUNBUFFERED="1")


def _find_modules(wish: Wish, record: Record) -> List[str]:
    """Where the modules lie that the course imports. Raises Problem where one is missing."""
    names = MODULES + ["ddp_course"] + (DEV_MODULES if record["dev"] else [])
    answer = subprocess.run(
        [_python(wish.venv), "-c", FIND, *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        cwd=os.path.join(ROOT, "tools"),
    )
    try:
        origins = json.loads(answer.stdout)
    except ValueError:
        origins = dict.fromkeys(names)
    missing = [name for name, origin in origins.items() if origin is None]
    if missing:
        raise Problem(
            "after the installation these are missing: {}.".format(", ".join(missing)),
            "pip was told to put packages elsewhere, or files were removed meanwhile.",
            "look into {}, then the same command again.".format(
                _name(os.path.join(wish.venv, LOG))
            ),
        )
    return list(origins.values())


def _read(venv: str, name: str) -> Record:
    try:
        with open(os.path.join(venv, name)) as file:
            record = json.load(file)
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(venv: str, name: str, record: Record) -> None:
    with open(os.path.join(venv, name), "w") as file:
        json.dump(record, file, indent=1)


def _project() -> str:
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _python(venv: str) -> str:
    return os.path.join(venv, "bin", "python")


def _runs(venv: str) -> bool:
    try:
        return subprocess.call([_python(venv), "-I", "-S", "-c", ""]) == 0
    except OSError:
        return False


def _name(path: str) -> str:
    return os.path.relpath(path, ROOT)


@contextlib.contextmanager
def _own_writes() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(str(error), 1, error.filename or ROOT) from None


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One installation at a time in one project; a second one waits."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = os.path.join(ROOT, "build", "install.lock")
    with _own_writes():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another `make` is installing in this folder; waiting for it …", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
