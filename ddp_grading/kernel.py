"""What the kernel itself limits for a whole sandbox: its processes and threads, and its memory.

Whoever looks from outside is slower than a fork bomb, so that is only the last resort.

    cgroup           a group of the sandbox's own, v2 or v1: pids.max and memory.max
    user namespace   RLIMIT_NPROC, counted inside the sandbox's own user namespace

A group needs a place in the cgroup file system where the grader may make one. RLIMIT_NPROC needs
Linux 5.14, and never holds for root: `sandbox.py` gives a grader that is root another user.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "ddp-box-"
_WANTED = {"pids", "memory"}
_GONE_S = 5.0  # for a group whose processes have ended to be removed


class Group:
    """A cgroup of v2, or one of v1 for each controller. `by` says what limits what."""

    def __init__(self, tasks: int, memory: int) -> None:
        self.by: dict[str, str] = {}  # "pids" and "memory" → "cgroup v1" or "cgroup v2"
        self._folders: list[Path] = []
        must = {
            "pids": {"pids.max": tasks},
            "memory": {"memory.limit_in_bytes": memory, "memory.max": memory},
        }
        may = {"memory.memsw.limit_in_bytes": memory, "memory.swap.max": 0, "memory.oom.group": 1}
        for parent, kind, controllers in _places():
            _tidy(parent)
            folder = parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                self._folders.append(folder)
                for controller in controllers - self.by.keys():
                    for name, value in must[controller].items():
                        if (folder / name).exists():
                            (folder / name).write_text(str(value))
                            self.by[controller] = kind
                for name, value in may.items():
                    with contextlib.suppress(OSError):
                        if (folder / name).exists():
                            (folder / name).write_text(str(value))

    def add(self, pid: int) -> None:
        """Put a process into it; what that starts is in it, too."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    @property
    def refused(self) -> str:
        """ "pids" or "memory": what the kernel has refused, or has killed for."""
        events = {"pids": ["pids.events"], "memory": ["memory.events", "memory.oom_control"]}
        for controller, names in events.items():
            for path in (folder / name for folder in self._folders for name in names):
                with contextlib.suppress(OSError, ValueError):
                    said = dict(line.split() for line in path.read_text().splitlines())
                    if int(said["max" if controller == "pids" else "oom_kill"]):
                        return controller
        return ""

    def close(self) -> None:
        """Remove it. Its processes must have been killed."""
        deadline = time.monotonic() + _GONE_S
        for folder in self._folders:
            while not _removed(folder) and time.monotonic() < deadline:
                time.sleep(0.01)


def counts_in_a_namespace() -> bool:
    """Whether RLIMIT_NPROC counts a user inside a user namespace apart from the rest of it."""
    release = platform.release().split("-")[0].split(".")
    return [int(number) for number in release[:2] if number.isdigit()] >= [5, 14]


def _places() -> Iterator[tuple[Path, str, set[str]]]:
    """Where a group may be made, of what kind, and what it would limit."""
    with contextlib.suppress(OSError, ValueError):
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, named, path = line.split(":", 2)
            for mount in mounts:
                file_system, options = mount[mount.index("-") + 1], mount[-1].split(",")
                own = Path(mount[4], os.path.relpath(path, mount[3]))
                if not os.path.normpath(own).startswith(mount[4]):
                    continue
                if file_system == "cgroup" and named and {*named.split(",")} <= {*options}:
                    if (controllers := _WANTED & {*named.split(",")}) and os.access(own, os.W_OK):
                        yield own, "cgroup v1", controllers
                elif file_system == "cgroup2" and not named:
                    yield from _delegated(own, Path(mount[4]))


def _delegated(own: Path, root: Path) -> Iterator[tuple[Path, str, set[str]]]:
    """The nearest group above whose children are limited, if the grader may make one there."""
    for folder in (own, *own.parents):
        if not folder.is_relative_to(root):
            return
        controllers = _WANTED & {*(folder / "cgroup.subtree_control").read_text().split()}
        if controllers and os.access(folder, os.W_OK):
            yield folder, "cgroup v2", controllers
            return


def _tidy(parent: Path) -> None:
    """Remove the groups of graders that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(ValueError):
            if not os.path.exists(f"/proc/{int(folder.name.split('-')[2])}"):
                _removed(folder)


def _removed(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        try:
            folder.rmdir()
        except OSError:
            return False
    return True
