"""The sandbox: bubblewrap around a submission, which sees nothing of the grader.

Inside are: Python and its packages, those modules of the course that a rank needs (no oracles, no
solutions, no grading), the submission, a folder with sockets, all read-only, and three small
tmpfs. There is no network but a loopback of its own, no capability, no way to get one, and no
environment but ours. When bubblewrap's process ends, however it ends, the kernel ends all others
of its PID namespace.

Linux only. Limits of single processes are set inside, by `inside.py`, before anything of the
submission runs; those of all together are watched from here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from ddp_course.errors import CourseError
from ddp_course.process import guard

COURSE, SUBMISSION, SOCKETS, OWN = "/course", "/submission", "/sockets", "/run/own"
SCRATCH = {"/tmp": 256 << 20, "/dev/shm": 128 << 20, OWN: 64 << 20}  # bytes
_COURSE = Path(__file__).resolve().parent.parent
# What a rank imports: how an exercise calls the function, but no oracle.
_SEEN_INSIDE = (
    "ddp_course/*.py",
    "ddp_course/rank/*.py",
    "ddp_course/process/**/*.py",
    "ddp_course/observe/__init__.py",
    "ddp_course/observe/recorder/*.py",
    *(
        f"ddp_course/checks/{name}.py"
        for name in ("__init__", "agreed", "calling", "driver", "evidence")
    ),
    "ddp_course/exercises/__init__.py",
    "ddp_course/exercises/*/__init__.py",
    "ddp_course/exercises/*/drive.py",
    "ddp_grading/__init__.py",
    "ddp_grading/inside.py",
)
_HOST = "sandbox"
_ETC = {
    "hosts": f"127.0.0.1 localhost {_HOST}\n::1 localhost {_HOST}\n",
    "passwd": "nobody:x:65534:65534:nobody:/tmp:/bin/false\n",
    "group": "nogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_START_S = 30.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class NoSandbox(CourseError):
    """Submissions cannot be contained on this machine."""


def version() -> str:
    """Such as "bubblewrap 0.8.0". Raises NoSandbox where there is none."""
    said = subprocess.run([_bwrap(), "--version"], capture_output=True, text=True, timeout=30)
    return said.stdout.strip() or "bubblewrap"


def _bwrap() -> str:
    found = shutil.which("bwrap") if sys.platform == "linux" else None
    if found is None:
        raise NoSandbox(
            "There is no bubblewrap here, which keeps submissions in a sandbox.",
            action="sudo apt-get install bubblewrap (Linux), or --unsafe-no-sandbox for files that "
            "you have read and trust",
        )
    return found


@contextlib.contextmanager
def image(folder: Path | None = None) -> Iterator[Path]:
    """What of ours goes into every sandbox, read-only: a folder in `folder`, made once."""
    with tempfile.TemporaryDirectory(prefix="ddp-image-", dir=folder) as name:
        root = Path(name)
        for path in (found for pattern in _SEEN_INSIDE for found in _COURSE.glob(pattern)):
            copy = root / "course" / path.relative_to(_COURSE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (root / "etc").mkdir()
        for file, text in _ETC.items():
            (root / "etc" / file).write_text(text)
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", str(root / "course")],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        yield root


def command(
    image: Path, submission: Path, sockets: Path, *, info: int, hidden: Iterable[Path] = ()
) -> list[str]:
    """bubblewrap's command line up to `--`, for an empty environment.

    info    a descriptor to which bubblewrap writes the process id of its child
    hidden  folders that are not to be seen although what is mounted may contain them
    """
    bwrap = _bwrap()
    words = [
        bwrap, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534",
        "--cap-drop", "ALL", "--hostname", _HOST, "--die-with-parent", "--new-session",
        "--info-fd", str(info),
    ]  # fmt: skip
    if "--disable-userns" in _help(bwrap):
        words.append("--disable-userns")  # or a process could be root in a namespace of its own
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib32", "lib64", "bin", "sbin"):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu"):
        words += ["--ro-bind-try", path, path]
    for file in _ETC:
        words += ["--ro-bind", str(image / "etc" / file), f"/etc/{file}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path, size in SCRATCH.items():  # before Python, which may be installed below one of them
        words += ["--size", str(size), "--tmpfs", path]
    roots = _python_roots()
    for root in roots:
        words += ["--ro-bind", root, root]
    for secret in {
        str(path.resolve())
        for path in (*hidden, _COURSE / "ddp_course", _COURSE / "ddp_grading", _COURSE)
    }:
        if any(Path(secret).is_relative_to(root) for root in ("/usr", *roots)):
            words += ["--tmpfs", secret]
            for root in roots:
                if Path(root).is_relative_to(secret):
                    words += ["--ro-bind", root, root]
    words += ["--ro-bind", str(image / "course"), COURSE]
    words += ["--ro-bind", str(submission), SUBMISSION, "--ro-bind", str(sockets), SOCKETS]
    words += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/tmp"]
    for name, value in environment().items():
        words += ["--setenv", name, value]
    return words


def environment() -> dict[str, str]:
    """All that a process inside finds in its environment."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "TMPDIR": OWN,
        "PYTHONPATH": COURSE,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def writable_folders() -> list[str]:
    """The scratch folders, and what leads from them to a Python that is installed below one."""
    found = dict.fromkeys(SCRATCH)
    for root in map(Path, _python_roots()):
        for folder in SCRATCH:
            found |= {str(up): None for up in root.parents if up.is_relative_to(folder)}
    return list(found)


def _python_roots() -> list[str]:
    """Where the interpreter and its packages are, outside /usr; none inside another."""
    torch = importlib.util.find_spec("torch")
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found |= {str(Path(os.path.realpath(sys.executable)).parent.parent)}
    found |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if torch is not None and torch.origin:
        found.add(str(Path(torch.origin).parent.parent))
    paths = sorted(Path(path).absolute() for path in found)
    outer = [
        one
        for one in paths
        if not any(one != other and one.is_relative_to(other) for other in paths)
        and not one.is_relative_to("/usr")
    ]
    return [str(path) for path in dict.fromkeys(outer)]


def _help(bwrap: str) -> str:
    if bwrap not in _helps:
        said = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=30)
        _helps[bwrap] = said.stdout + said.stderr
    return _helps[bwrap]


_helps: dict[str, str] = {}


class Sandbox:
    """A running sandbox. It must be started by a thread that lives as long as it is needed:
    --die-with-parent means that thread."""

    def __init__(
        self,
        image: Path,
        submission: Path,
        sockets: Path,
        arguments: Sequence[str],
        *,
        hidden: Iterable[Path] = (),
    ) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as it runs
        read, write = os.pipe()
        try:
            words = command(image, submission, sockets, info=write, hidden=hidden)
            self._process = subprocess.Popen(
                [*words, "--", sys.executable, *arguments],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[write],
            )
            os.close(write)
            write = -1
            self.init = _child_pid(read)  # process 1 of the namespace, as seen from outside
        except BaseException:
            self._said.close()
            raise
        finally:
            os.close(read)
            if write >= 0:
                os.close(write)
        if not self.init:
            words_ = self.last_words()
            self.kill()
            raise NoSandbox(
                f"bubblewrap does not start: {words_ or 'it said nothing'}.",
                cause="this machine or container forbids unprivileged user namespaces",
                action="allow them (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu an "
                "AppArmor profile for bwrap), or --unsafe-no-sandbox for files that you trust",
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def loopback_bytes(self) -> int:
        """What its loopback has received so far. Raises OSError if that cannot be read."""
        with open(f"/proc/{self.init}/net/dev") as file:
            for line in file:
                name, _, numbers = line.partition(":")
                if name.strip() == "lo":
                    return int(numbers.split()[0])
        raise OSError("the sandbox has no loopback")

    def processes(self) -> set[int]:
        """All but its process 1, as numbers outside."""
        return guard.descendants(self.init)

    def files(self) -> set[str]:
        """What lies in its scratch folders. Raises OSError if that cannot be read."""
        return {
            f"{folder}/{name}"
            for folder in writable_folders()
            for name in os.listdir(f"/proc/{self.init}/root{folder}")
        }

    def memory(self, at_least: int) -> int:
        """Bytes that its processes hold. Shared pages are counted once, if the sum with them
        counted each time is `at_least` that; below, that sum is the answer."""
        pids = self.processes()
        rough = sum(_resident(pid) for pid in pids)
        return rough if rough < at_least else sum(_share(pid) for pid in pids)

    def last_words(self) -> str:
        """The end of what bubblewrap and our process inside printed."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 2000))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def interrupt(self) -> None:
        """End it; returns at once, and may be called from any thread."""
        self._process.kill()

    def kill(self) -> None:
        """End it and everything in it; returns when nothing is left."""
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + 30
        while self.init and os.path.exists(f"/proc/{self.init}") and time.monotonic() < deadline:
            time.sleep(0.005)
        self._said.close()


def _child_pid(read: int) -> int:
    """What bubblewrap tells on its --info-fd; 0 if it ends before."""
    told = b""
    deadline = time.monotonic() + _START_S
    waiter = select.poll()
    waiter.register(read, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and waiter.poll(left * 1000):
        piece = os.read(read, 4096)
        told += piece
        with contextlib.suppress(ValueError):
            return int(json.loads(told)["child-pid"])
        if not piece:
            break
    return 0


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _share(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident(pid)
