"""What every command line of the course does: run a command, turn its errors into an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable

from ddp_course.errors import CourseError


def run(command: Callable[[], int], *, anywhere: bool = False) -> int:
    """The command's exit code; 2 with its message for a CourseError, 130 after Ctrl-C.

    `anywhere`   also on Windows, where nothing else can run
    """
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack a sign, a name may be no Unicode
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.platform == "win32" and not anywhere:
            raise importlib.import_module("ddp_course.machine").not_on_windows()
        return command()
    except CourseError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has read enough, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
