"""A profile of a script that marks no steps itself, for `launch(…, trace=True)`.

It begins when the script makes its process group and ends after the optimizer's first KEEP_STEPS
steps, or after MOST_S seconds, so that no run is slow, and no rank's memory full, because of it. If
no step has ended by then, it begins again with the next. A script that says `traced()` is left to
trace what it marks, and a profiler of the script's own ends ours: torch runs one at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import types
from typing import Any

from .hooks import note_lookups
from .progress import Progress

KEEP_STEPS = 5
MOST_S = 10.0
_GLOO_S = 0.02  # Gloo's threads close their last event a moment after wait() returns
_C10D = "torch.distributed.distributed_c10d"
_Pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Tracing:
    def __init__(self, path: str, progress: Progress) -> None:
        self._path, self._progress = path, progress
        self._profiler: Any = None  # while it runs
        self._since, self._steps, self._thread = 0.0, 0, 0
        self._starting = self._over = False
        self._stop_late = _Pending(self._late)
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # a CUDA build without a GPU complains

    def watch_groups(self) -> None:
        c10d: Any = sys.modules[_C10D]
        name_of = c10d._process_group_name

        def process_group_name(*arguments: Any, **options: Any) -> Any:
            self._start()
            return name_of(*arguments, **options)

        c10d._process_group_name = process_group_name

    def watch_optimizers(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._on_step)

    def watch_profilers(self) -> None:
        note_lookups(
            sys.modules["torch.autograd.profiler"].profile, "_prepare_trace", self._on_other
        )

    def look(self) -> None:
        """From the recorder's thread: a profiler is stopped by the thread that started it."""
        if self._profiler is not None and time.monotonic() - self._since > MOST_S:
            ctypes.pythonapi.Py_AddPendingCall(self._stop_late, None)

    def end(self) -> None:
        """The rank ends: write what there is."""
        if self._profiler is not None:
            time.sleep(_GLOO_S)
            self._stop()

    def forget(self) -> None:
        """In a forked child, such as a data loader's worker: record nothing."""
        if self._profiler is not None:
            self._profiler, self._over = None, True
            sys.modules["torch"].autograd._enable_record_function(False)

    def _start(self) -> None:
        if self._over or self._profiler is not None:
            return
        with contextlib.suppress(Exception):
            if threading.current_thread() is not threading.main_thread() or _marks_itself():
                self._over = True
                return
            import torch

            if torch._C._autograd._profiler_enabled():
                return
            activities = [torch.profiler.ProfilerActivity.CPU]
            if vars(torch)["cuda"].is_initialized():
                activities.append(torch.profiler.ProfilerActivity.CUDA)  # not verified on a GPU
            profiler = torch.profiler.profile(activities=activities, record_shapes=True)
            self._starting = True
            try:
                profiler.start()
            finally:
                self._starting = False
            self._profiler, self._since = profiler, time.monotonic()
            self._steps, self._thread = self._progress.steps.total, threading.get_ident()

    def _on_step(self, optimizer: object, arguments: object, options: object) -> None:
        if self._profiler is None:
            self._start()
        elif self._progress.steps.total - self._steps >= KEEP_STEPS:
            self._stop()

    def _on_other(self, profiler: object, frame: types.FrameType) -> None:
        if self._profiler is not None and not self._starting:
            self._stop()

    def _late(self, _: object) -> int:
        if self._profiler is not None and time.monotonic() - self._since > MOST_S:
            self._stop()
        return 0

    def _stop(self) -> None:
        """Leave the file; all is over once it holds a step."""
        if threading.get_ident() != self._thread:
            return
        profiler, self._profiler = self._profiler, None
        self._over = self._progress.steps.total > self._steps
        with contextlib.suppress(Exception):
            profiler.stop()
            draft = f"{self._path}.{os.getpid()}"
            profiler.export_chrome_trace(draft)
            os.replace(draft, self._path)


def _marks_itself() -> bool:
    """Whether the script says `traced()` of the steps that it wants to see."""
    try:
        with open(sys.modules["__main__"].__file__ or "", "rb") as file:
            return b"traced(" in file.read()
    except (AttributeError, OSError):
        return False
