"""Files that a rank may have written, hence data from anyone: opened without waiting, read in part.

A rank can leave anything under any name: a named pipe that nobody writes to, a link to a device,
gigabytes, JSON nested ten thousand deep. What comes from here is plain values or an error; nothing
is unpickled or executed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any


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


def parse_json(text: str | bytes) -> Any:
    """json.loads, for which nesting too deep is one more kind of ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
