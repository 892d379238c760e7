"""The one way to read, write and lock files, most of them in folders that a rank writes to.

What lies there is data from anyone: it is never waited for, and read in part.

A rank can leave anything under any name: a named pipe that nobody reads or writes, a link to a
device or to a file of yours, gigabytes, JSON nested ten thousand deep. What comes from here is
plain values or an error; nothing is unpickled or executed. What we write there goes nowhere else.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

PACKAGE = Path(__file__).parent

T = TypeVar("T")


def open_file(path: str | Path) -> IO[bytes]:
    """Open a regular file to read. Raises OSError for anything else: a pipe, a device, a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return open(descriptor, "rb")


def read_bytes(path: str | Path, most: int) -> bytes:
    """The whole of a regular file. Raises OSError if it is none, or longer than `most` bytes."""
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"More than {most / 1e6:g} MB", str(path))
    return data


def read_json(path: str | Path, most: int = 16_000_000) -> Any:
    """The JSON value of a regular file. Raises OSError as `read_bytes`, ValueError for no JSON."""
    return parse_json(read_bytes(path, most))


def read_as(kind: type[T], path: str | Path, most: int = 16_000_000) -> T:
    """What a JSON file holds, as a class whose annotations are its schema (msgspec).

    Raises OSError as `read_bytes`, ValueError for anything else than the schema allows.
    """
    return parse_as(kind, read_bytes(path, most))


def parse_as(kind: type[T], text: str | bytes) -> T:
    """JSON as a class whose annotations are its schema. Raises ValueError."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None


def check(kind: Any, value: Any) -> None:
    """Raise ValueError unless a JSON value is as a class's annotations say."""
    try:
        msgspec.convert(value, kind, str_keys=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def parse_json(text: str | bytes) -> Any:
    """json.loads, for which nesting too deep is one more kind of ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write(path: Path, text: str) -> None:
    """Write a whole file in the place of whatever has this name. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def append(path: Path, text: str) -> None:
    """Append to a regular file of exactly this name. Raises OSError if it is something else."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        file.write(text)


class Lock:
    """Marks a run folder as in use for as long as it is held (flock on the folder itself)."""

    _descriptor = -1

    def __init__(self, folder: Path, *, exclusive: bool = False) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self.held = True
        try:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            self.held = False

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    __del__ = release
