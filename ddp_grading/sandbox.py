"""The sandbox: bubblewrap around a submission, which sees nothing of the grader.

Inside are: Python and its packages, those modules of the course that a rank needs (no oracles, no
solutions, no grading), the submission, a folder with sockets, all read-only, and three small
tmpfs. There is no network but a loopback of its own, no capability, no way to get one, and no
environment but ours. When bubblewrap's process ends, however it ends, the kernel ends all others
of its PID namespace.

Linux only. Limits of single processes are set inside, by `inside.py`, before anything of the
submission runs; those of all together by the kernel (`kernel.py`), and are watched from here.

A grader that is root gives the sandbox a user of its own, an id that nobody has: root's processes
are not counted, and files that only root may read would be readable inside.
"""

from __future__ import annotations

import contextlib
import functools
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
from typing import IO, Any

from ddp_course.errors import CourseError
from ddp_course.process import guard
from ddp_grading import kernel

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
TASKS, MEMORY, INODES = 256, 6 << 30, 100_000  # processes and threads; bytes; files in its scratch
_INSIDE_ID = 65534
# What runs first inside: it becomes nobody where it is not yet, may start so many processes and
# threads, is the first to be killed when memory runs out, and then is what it is told to be.
_ENTER = f"""
import os, resource, sys
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
if os.getuid() == 0:
    os.setresgid(*3 * [{_INSIDE_ID}])
    os.setresuid(*3 * [{_INSIDE_ID}])
if int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_NPROC, 2 * (int(sys.argv[1]),))
os.execv(sys.argv[2], sys.argv[2:])
"""
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
    image: Path,
    submission: Path,
    sockets: Path,
    *,
    info: int,
    gate: int,
    outside: int = 0,
    hidden: Iterable[Path] = (),
) -> list[str]:
    """bubblewrap's command line up to `--`, for an empty environment.

    info     a descriptor to which bubblewrap writes the process id of its child
    gate     one from which it reads a byte before it goes on
    outside  the user that nobody inside is outside, if not the grader; `_map` sees to it
    hidden   folders that are not to be seen although what is mounted may contain them
    """
    bwrap, inside = _bwrap(), "0" if outside else str(_INSIDE_ID)
    words = [
        bwrap, "--unshare-all", "--unshare-user", "--uid", inside, "--gid", inside,
        "--cap-drop", "ALL", "--hostname", _HOST, "--die-with-parent", "--new-session",
        "--info-fd", str(info), "--userns-block-fd" if outside else "--block-fd", str(gate),
    ]  # fmt: skip
    if outside:
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    elif "--disable-userns" in _help(bwrap):
        words.append("--disable-userns")  # or a process could be root in a namespace of its own
    roots = _python_roots()
    # What leads to the mounts, or bubblewrap would make it root's alone; below scratch, see there.
    above = {up for path in (OWN, "/etc/x", "/sys/devices/system/cpu") for up in Path(path).parents}
    words += ["--ro-bind", "/usr", "/usr", *_folders(above)]
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
        words += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
    words += _folders({up for root in roots for up in Path(root).parents})
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


def _folders(paths: Iterable[Path]) -> list[str]:
    return [
        word
        for path in sorted(paths)
        if path != Path("/")
        for word in ("--perms", "0755", "--dir", str(path))
    ]


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


def _map(init: int, outside: int) -> None:
    """Make nobody inside the user `outside`, and let nobody there make a user namespace."""
    for kind in ("uid", "gid"):
        Path(f"/proc/{init}/{kind}_map").write_text(f"0 0 1\n{_INSIDE_ID} {outside} 1\n")
    none = "echo 0 > /proc/sys/user/max_user_namespaces"
    subprocess.run(
        ["nsenter", f"--user=/proc/{init}/ns/user", "/bin/sh", "-c", none],
        check=True,
        capture_output=True,
        timeout=_START_S,
    )


@functools.cache
def user_outside() -> int:
    """The user that nobody in a sandbox is outside, if the grader is root and can have that."""
    if os.geteuid() != 0:
        return 0
    with contextlib.suppress(OSError, ValueError):
        taken = {os.stat(f"/proc/{pid}").st_uid for pid in os.listdir("/proc") if pid.isdigit()}
        taken |= {int(line.split(":")[2]) for line in Path("/etc/passwd").read_text().splitlines()}
        number = next(uid for uid in range(64_000, 65_000) if uid not in taken)
        torch = importlib.util.find_spec("torch")
        code = f"open({torch.origin!r}).close()" if torch else ""
        with (
            contextlib.suppress(NoSandbox),
            image() as folder,
            _trial(folder, code, outside=number) as inside,
        ):
            return 0 if inside.wait(_START_S) else number
    return 0


# Bounded: a machine where nothing limits them takes no harm.
_FORKS = """
import os, time
for number in range(300):
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    except OSError:
        raise SystemExit(0)
raise SystemExit(1)
"""
_MEMFDS = """
import os
for number in range(192):
    os.write(os.memfd_create("x"), bytes(1 << 20))
print("held")
"""


def limits(image: Path, **how: Any) -> dict[str, str]:
    """What the kernel was seen to limit here, "pids" and "memory", and by what. It is tried: with
    a few hundred forks that sleep, and with some memory that belongs to no process."""
    found = {}
    with _trial(image, _FORKS, tasks=40, **how) as inside:
        if inside.wait(_START_S) == 0:
            found["pids"] = inside.limited_by.get("pids", "the kernel")
    with _trial(image, _MEMFDS, memory=96 << 20, **how) as inside:
        inside.wait(_START_S)
        if inside.last_words() != "held":
            found["memory"] = inside.limited_by.get("memory", "the kernel")
    return found


def in_words(found: dict[str, str]) -> str:
    """What `limits` has found, for the report."""
    names = {"pids": "processes", "memory": "memory"}
    said = [f"{names[key]} limited by {found[key]}" for key in names if key in found]
    said += [f"{name} only watched" for key, name in names.items() if key not in found]
    return ", ".join(said)


@contextlib.contextmanager
def _trial(image: Path, code: str, **how: Any) -> Iterator[Sandbox]:
    inside = Sandbox(image, image, image, ["-c", code], **how)
    try:
        yield inside
    finally:
        inside.kill()


def give(*paths: Path) -> None:
    """Let nobody in a sandbox use these, as far as they are mounted there."""
    for path in paths if (user := user_outside()) else ():
        os.chown(path, user, user)


class Sandbox:
    """A running sandbox. It must be started by a thread that lives as long as it is needed:
    --die-with-parent means that thread.

    tasks    processes and threads that it may have; memory: bytes. `limited_by` says who sees to
             it: "cgroup v1", "cgroup v2", "user namespace"; what is not there is only watched
    """

    def __init__(
        self,
        image: Path,
        submission: Path,
        sockets: Path,
        arguments: Sequence[str],
        *,
        hidden: Iterable[Path] = (),
        tasks: int = TASKS,
        memory: int = MEMORY,
        outside: int | None = None,
        groups: bool = True,
    ) -> None:
        outside = user_outside() if outside is None else outside
        self.init, self._tasks, self._memory = 0, tasks, memory
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as it runs
        self._group = kernel.Group(tasks, memory) if groups else None
        self.limited_by = dict(self._group.by) if self._group else {}
        counted = bool(outside) or (os.geteuid() != 0 and kernel.counts_in_a_namespace())
        if counted:
            self.limited_by.setdefault("pids", "user namespace")
        read, info = os.pipe()
        gate, go = os.pipe()
        try:
            words = command(
                image, submission, sockets, info=info, gate=gate, outside=outside, hidden=hidden
            )
            enter = [sys.executable, "-S", "-c", _ENTER, str(tasks if counted else 0)]
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*words, "--", *enter, sys.executable, *arguments],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[info, gate],
                extra_groups=[] if outside else None,
            )
            os.close(info)
            info = -1
            self.init = _child_pid(read)  # process 1 of the namespace, as seen from outside
            problem = "" if self.init else self._wait_for_words()
            if self.init:
                problem = self._let_in(outside, go)
        except BaseException:
            self._said.close()
            raise
        finally:
            for descriptor in (read, gate, go, *[info] * (info >= 0)):
                os.close(descriptor)
        if problem:
            self.kill()
            raise NoSandbox(
                f"bubblewrap does not start: {problem}.",
                cause="this machine or container forbids unprivileged user namespaces",
                action="allow them (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu an "
                "AppArmor profile for bwrap), or --unsafe-no-sandbox for files that you trust",
            )

    def _let_in(self, outside: int, go: int) -> str:
        """Let the first process go on, with all its limits; → what is in the way, or ""."""
        try:
            if self._group:
                self._group.add(self.init)
            if outside:
                _map(self.init, outside)
            os.write(go, b"1")
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        return ""

    def _wait_for_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        return self.last_words() or "it said nothing"

    def wait(self, seconds: float) -> int:
        """How its program ended: 0, or another number; also if it has not."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return -1

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

    def excess(self) -> str:
        """Why it must be ended, or "". What the kernel limits it has refused by then."""
        refused, pids = self._group.refused if self._group else "", self.processes()
        if refused == "pids" or sum(map(_threads, pids)) >= self._tasks - 2:  # init; who asks
            return f"More than {self._tasks} processes and threads were started; the job was ended."
        if refused == "memory" or ("memory" not in self.limited_by and self._takes_too_much(pids)):
            limit = self._memory / 2**30
            return f"More than {limit:.1f} GiB of memory were taken; the job was ended."
        for folder in SCRATCH:
            with contextlib.suppress(OSError):
                about = os.statvfs(f"/proc/{self.init}/root{folder}")
                if about.f_files - about.f_ffree > INODES:
                    return f"More than {INODES:,} files were made; the job was ended."
        return ""

    def _takes_too_much(self, pids: set[int]) -> bool:
        """Whether its processes hold more than they may. Shared pages are counted once, if the sum
        with them counted each time is too much."""
        hidden = _memfds(pids)
        rough = hidden + sum(map(_resident, pids))
        return rough > self._memory and hidden + sum(map(_share, pids)) > self._memory

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
        if self._group:
            self._group.close()


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


def _threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def _memfds(pids: set[int]) -> int:
    """Bytes in files that lie in memory and nowhere else, each once."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        about = entry.stat()
                        found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())
