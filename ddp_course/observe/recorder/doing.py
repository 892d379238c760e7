"""What a rank does now, if it has been waiting for a while: `doing-<rank>.json`.

A thread looks at the main thread's Python frames and at the processor time that the process took.
It writes only when a wait has lasted for two looks, and when such a wait is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any

from .frames import Frame, Source, frames_of

TICK_S = 0.25
_BUSY = 0.3  # share of a tick; a rank that takes less of the processor waits
_C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
_FRAMES = 60
_INSIDE = {  # a function of torch in which a rank may wait in C++ -> for what
    "_engine_run_backward": "backward",
    "_sync_module_states": "broadcast",
    "_sync_buffers": "broadcast",
    "_verify_param_shape_across_processes": "all_gather",
    "_next_data": "the data loader",
}


class Doing:
    def __init__(self, path: str, attempt: int, source: Source) -> None:
        self._path, self._attempt, self._source = path, attempt, source
        self._cpu_s = self._looked = 0.0
        self._wait: tuple[str, Frame | None] | None = None
        self._since, self._told = 0.0, False

    def look(self) -> None:
        """Never raises; called every TICK_S."""
        with contextlib.suppress(Exception):
            now, cpu_s = time.time(), time.process_time()
            busy = cpu_s - self._cpu_s > _BUSY * (now - self._looked)
            wait = None if busy else self._waiting()
            if wait != self._wait or wait is None:
                self._over()
                self._wait, self._since = wait, self._looked or now
            elif not self._told:
                self._told = True
                self._write(wait[0], self._source.line(wait[1]))
            self._cpu_s, self._looked = cpu_s, now

    def _waiting(self) -> tuple[str, Frame | None]:
        """(the call in which it waits, or ""; the learner's line)."""
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        frames = frames_of(main, _FRAMES)
        calls = [function for file, _, function in frames if file.endswith(_C10D)]
        known = [_INSIDE[function] for _, _, function in frames if function in _INSIDE]
        return (calls[-1:] or known[:1] or [""])[0], self._source.innermost(frames)

    def _over(self) -> None:
        if self._told:
            self._told = False
            self._write("", None)

    def _write(self, call: str, line: dict[str, Any] | None) -> None:
        told = {"attempt": self._attempt, "t": self._since, "call": call, "line": line}
        told["waits"] = self._told
        draft = f"{self._path}.{os.getpid()}"
        with open(draft, "w") as file:
            json.dump(told, file)
        os.replace(draft, self._path)
