"""Lines of code: which of a stack's frames are the learner's own, and what their lines say."""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Frame = tuple[str, int, str]  # file, line, function

_OUTER, _INNER = 20, 40  # frames of a stack that are kept: the learner's own may be far outside
_NOT_PYTHON = "??", ".so", ".c", ".cc", ".cpp", ".h"
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_JOBS = os.path.join(_PACKAGE, "jobs")
_HOST = os.path.join(_PACKAGE, "process", "host.py")
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))


class Source:
    """Frames of this process, as a ledger tells them."""

    def __init__(self) -> None:
        self._cwd = os.getcwd()
        self._own: dict[str, bool] = {}  # whether a file is the learner's

    def innermost(self, frames: Iterable[Frame]) -> Frame | None:
        """The first of these frames, innermost first, that is the learner's own code."""
        return next(self.own(frames), None)

    def own(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Those of these frames that are the learner's own code."""
        return (f for f in frames if f[1] > 0 and self._is_own(f[0]))

    def line(self, frame: Frame | None) -> dict[str, Any] | None:
        if frame is None:
            return None
        file, line, function = frame
        path = file if file.startswith("<") else os.path.normpath(os.path.join(self._cwd, file))
        code = linecache.getline(path, line).strip()[:200]
        return {"file": path, "line": line, "function": function, "code": code}

    def own_line(self, frames: Iterable[Frame]) -> dict[str, Any] | None:
        return self.line(self.innermost(frames))

    def stack(self, frames: Iterable[Frame]) -> list[dict[str, Any]]:
        """Outermost first; of a deep one, both ends."""
        told = [self.line(frame) for frame in frames if not _is_ours(frame[0])]
        kept = [line for line in told if line is not None]
        return kept if len(kept) <= _OUTER + _INNER else kept[:_OUTER] + kept[-_INNER:]

    def _is_own(self, file: str) -> bool:
        if file not in self._own:
            self._own[file] = is_own(os.path.join(self._cwd, file)) and not file.startswith("<")
        return self._own[file]


def frames_of(frame: types.FrameType | None, most: int = 10_000) -> list[Frame]:
    """Innermost first."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < most:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames


def frames_of_traceback(trace: types.TracebackType | None) -> Iterator[Frame]:
    """Outermost first."""
    while trace is not None:
        code = trace.tb_frame.f_code
        yield code.co_filename, trace.tb_lineno, code.co_name
        trace = trace.tb_next


def is_own(path: str) -> bool:
    """Whether a file is the learner's: not Python's, not installed, not ours (jobs are theirs)."""
    folders: Sequence[str] = path.split(os.sep)
    if path.endswith(_NOT_PYTHON):  # TORCH_FR_CPP_STACK=1 mixes the frames of C++ in
        return False
    if "site-packages" in folders or "dist-packages" in folders:
        return False
    if _within(path, _PACKAGE):
        return _within(path, _JOBS)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    return not _within(path, _STDLIB) and not (torch and _within(path, os.path.dirname(torch)))


def _is_ours(file: str) -> bool:
    return file == _HOST or _within(file, _HERE)


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)
