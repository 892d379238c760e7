"""A rank's own account of what it communicates, left in the run's folder when the rank ends.

`begin` is called in every rank before the learner's script: by the warm host, or by the
sitecustomize of `process/rank_side/` in a plain launch. It acts only if the launcher set
DDP_COURSE_RECORD. A ledger is written when the rank exits, at an exception that nobody caught, at
SIGTERM (torchrun ends the others so), when C++ terminates (Gloo, on a size that differs), and at
SIGURG, which asks for it and changes nothing else: `ledger-<rank>-<attempt>.json`, which
ddp_course.observe.ledger reads.

    what        calls.py: collectives, sends, groups; progress.py: passes, steps, replicas;
                doing.py: in what the rank waits now; tracing.py: a profile, if it was asked for
    how         A thread waits on the pipe of signal.set_wakeup_fd. The C-level handler writes to
                it also while the main thread waits in C++, where no Python handler would run.
    invisible   The rank ends by the same signal or exit code as without it; forked children
                inherit nothing of it; a SIGTERM handler of the script is the script's; no frame
                of it is in a traceback.

Standard library only, and nothing of ddp_course: a script may have its own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from .calls import Calls
from .doing import TICK_S, Doing
from .frames import Source, frames_of, frames_of_traceback
from .hooks import after_import
from .progress import Progress
from .tracing import Tracing

VERSION = 2
_KEEP_TEXT = 2000  # characters of an exception's text
_HEARD = signal.SIGTERM, signal.SIGURG
_ASKED = "DDP_COURSE_RECORD"
_Terminate = ctypes.CFUNCTYPE(None)


def begin(*, leaves_by_exit: bool = False) -> None:
    """Keep the ledger of this process, if the launcher asked for it and it is a rank.

    leaves_by_exit  the process will end by os._exit after its atexit functions, as warm ranks do
    """
    env = os.environ
    if not env.get(_ASKED) or "RANK" not in env:
        return  # torchrun itself hands it on to its ranks
    del env[_ASKED]  # what a rank starts is no rank
    with contextlib.suppress(Exception):
        Recorder(env, leaves_by_exit=leaves_by_exit).start()


class Recorder:
    def __init__(self, env: Mapping[str, str], *, leaves_by_exit: bool) -> None:
        self._rank = int(env["RANK"])
        self._attempt = int(env.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._world_size = int(env.get("WORLD_SIZE", "0"))
        self._folder = os.path.abspath(env["DDP_COURSE_RUN"])
        self._pid, self._leaves_by_exit = os.getpid(), leaves_by_exit
        self._lock, self._forking = threading.RLock(), threading.local()
        self._source, self._progress = Source(), Progress()
        self._calls = Calls(self._progress, self._source)
        path = os.path.join(self._folder, f"doing-{self._rank}.json")
        self._doing = Doing(path, self._attempt, self._source)
        self._tracing: Tracing | None = None
        if env.get("DDP_COURSE_TRACE") == "1":
            path = os.path.join(self._folder, f"trace-{self._rank}.json")
            self._tracing = Tracing(path, self._progress)
        self._end: dict[str, Any] = {}  # why, t, stack and exception of an end that began before
        self._exit: Callable[[int], Any] = os._exit
        self._excepthook: Callable[..., Any] = sys.excepthook
        self._reader = self._writer = -1
        self._terminate_pointer: int | None = None

    def start(self) -> None:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGURG, _go_on)
        for number in _HEARD:
            signal.siginterrupt(number, False)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, name="ddp-course-recorder", daemon=True).start()
        sys.excepthook = self._on_exception
        os._exit = self._on_exit  # type: ignore[assignment]
        atexit.register(self._at_exit)
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._forget
        )
        watches = [
            ("torch.distributed.distributed_c10d", self._set_terminate),
            ("torch.distributed.distributed_c10d", self._calls.watch),
            ("torch.distributed.distributed_c10d", self._progress.watch_reducer),
            ("torch.optim.optimizer", self._progress.watch_optimizers),
            ("torch.amp.grad_scaler", self._progress.watch_scaler),
        ]
        if self._tracing is not None:
            watches.insert(1, ("torch.distributed.distributed_c10d", self._tracing.watch_groups))
            watches.append(("torch.optim.optimizer", self._tracing.watch_optimizers))
            watches.append(("torch.autograd.profiler", self._tracing.watch_profilers))
        for name, watch in watches:
            after_import(name, watch)

    # When to write

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while True:
            if not poll.poll(TICK_S * 1000):
                self._doing.look()
                if self._tracing is not None:
                    self._tracing.look()
                continue
            try:
                numbers = os.read(self._reader, 64)
            except OSError:
                return
            if signal.SIGTERM in numbers:
                self._write("terminated")
                if signal.getsignal(signal.SIGTERM) == self._on_terminate:
                    self._end_by_sigterm()
            elif signal.SIGURG in numbers:
                self._write("asked")

    def _on_terminate(self, number: int, frame: types.FrameType | None) -> None:
        self._write("terminated")
        self._end_by_sigterm()

    def _before_fork(self) -> None:
        """No signal may meet a child while it still writes to the pipe that its parent reads."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)

    def _after_fork(self) -> None:
        with contextlib.suppress(AttributeError):
            signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _end_by_sigterm(self) -> None:
        # Python's lock stays here from the first call to the last: the main thread may be waiting,
        # where signal.signal does not work, or be about to write its error file.
        libc = ctypes.PyDLL(None)
        libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
        self._lock.acquire(timeout=2)  # no ledger is left half written
        half = self._half_an_error_file()
        libc.signal(int(signal.SIGTERM), None)
        if half:
            libc.unlink(half)
        libc.kill(self._pid, int(signal.SIGTERM))
        time.sleep(10)  # it is on its way

    def _half_an_error_file(self) -> bytes:
        """The path of this rank's error file if it is not whole: torchrun itself fails on such a
        one (torch/distributed/elastic/multiprocessing/errors), and restarts nothing."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
        try:
            with open(path, "rb") as file:
                json.load(file)
        except (OSError, ValueError):
            return os.fsencode(path)
        return b""

    def _on_exception(self, kind: Any, error: Any, trace: Any) -> None:
        self._excepthook(kind, error, trace)
        if os.getpid() == self._pid:
            with contextlib.suppress(Exception):
                self._end = {
                    "why": "exception",
                    "t": time.time(),
                    "exception": self._exception(kind, error, trace),
                    "stack": self._source.stack(frames_of_traceback(trace)),
                }
            self._write("exception", 1)

    def _on_exit(self, status: int) -> None:
        if self._tracing is not None and os.getpid() == self._pid:
            self._tracing.end()
        self._write("exit", status)
        self._exit(status)

    def _at_exit(self) -> None:
        if self._tracing is not None:
            self._tracing.end()
        self._restore_terminate()  # from here on a thread that wants Python's lock never gets it
        if not self._leaves_by_exit:
            self._write("exit", 1 if self._end.get("why") == "exception" else None)
            self._restore_sigterm()  # while Python shuts down, nobody would hear it

    def _on_cpp_terminate(self) -> None:
        self._write("aborted")
        if self._terminate_pointer:
            _Terminate(self._terminate_pointer)()  # it says what was thrown, and aborts

    def _forget(self) -> None:
        """In a forked child: be as a child of a rank without a recorder."""
        with contextlib.suppress(Exception):
            if self._writer >= 0:  # not so in a child's child
                self._undo()
        self._after_fork()

    def _undo(self) -> None:
        reader, writer = self._reader, self._writer
        self._reader = self._writer = -1
        atexit.unregister(self._at_exit)
        if self._tracing is not None:
            self._tracing.forget()
        self._restore_terminate()
        if os._exit == self._on_exit:
            os._exit = self._exit  # type: ignore[assignment]
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._excepthook
        self._restore_sigterm()
        if signal.getsignal(signal.SIGURG) is _go_on:
            signal.signal(signal.SIGURG, signal.SIG_DFL)
        other = signal.set_wakeup_fd(-1)
        if other not in (-1, writer):
            signal.set_wakeup_fd(other)
        os.close(reader)
        os.close(writer)

    def _restore_sigterm(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._on_terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # torch

    def _set_terminate(self) -> None:
        """std::set_terminate: asked before SIGABRT, in the thread that threw, and only by C++."""
        library = ctypes.CDLL("libc++.1.dylib" if sys.platform == "darwin" else "libstdc++.so.6")
        self._cpp_set_terminate = library._ZSt13set_terminatePFvvE
        self._cpp_set_terminate.restype = ctypes.c_void_p
        self._cpp_set_terminate.argtypes = (ctypes.c_void_p,)
        self._cpp_callback = _Terminate(self._on_cpp_terminate)
        pointer = ctypes.cast(self._cpp_callback, ctypes.c_void_p)
        self._terminate_pointer = self._cpp_set_terminate(pointer)

    def _restore_terminate(self) -> None:
        if self._terminate_pointer:
            self._cpp_set_terminate(self._terminate_pointer)

    # What to write

    def _write(self, why: str, exit_code: int | None = None) -> None:
        """Write the ledger; never raise, and never take long: a rank that ends waits for it."""
        if os.getpid() != self._pid or not self._lock.acquire(timeout=2):
            return
        name = f"ledger-{self._rank}-{self._attempt}.json"
        draft = os.path.join(self._folder, f".{name}.{os.getpid()}")
        collects = gc.isenabled()
        gc.disable()  # thousands of small objects; each collection would look at all of torch's
        try:
            record = json.dumps(self._record(why, exit_code), separators=(",", ":"))
            with open(draft, "w") as file:
                file.write(record)
            os.replace(draft, os.path.join(self._folder, name))
        except BaseException:  # a rank's end is its own, whatever becomes of the ledger
            with contextlib.suppress(OSError):
                os.unlink(draft)
        finally:
            if collects:
                gc.enable()
            self._lock.release()

    def _record(self, why: str, exit_code: int | None) -> dict[str, Any]:
        end = {"why": why, "t": time.time(), "exception": None, "stack": []}
        if why != "exit":
            main = sys._current_frames().get(threading.main_thread().ident or 0)
            end["stack"] = self._source.stack(reversed(frames_of(main)))
            with contextlib.suppress(Exception):
                end["handling"] = self._handling()
        if why == "terminated" and not self._end:
            self._end = end
        told: dict[str, Any] = {"entries": [], "dropped": 0}
        for part in (self._calls, self._progress):
            with contextlib.suppress(Exception):  # another torch may record otherwise
                told |= part.record()
        return {
            "version": VERSION,
            "rank": self._rank,
            "attempt": self._attempt,
            "world_size": self._world_size,
            "exit_code": exit_code,
            **(self._end or end),
            **told,
        }

    def _handling(self) -> dict[str, Any] | None:
        """The exception for which the main thread is in an `except` or `finally`."""
        known: dict[int, Any] = sys._current_exceptions()
        error = known.get(threading.main_thread().ident or 0)
        if isinstance(error, tuple):  # Python 3.11
            error = error[1]
        return None if error is None else self._exception(type(error), error, error.__traceback__)

    def _exception(self, kind: type, error: BaseException, trace: Any) -> dict[str, Any]:
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        frames = list(frames_of_traceback(trace))
        return {
            "type": module + kind.__qualname__,
            "text": str(error)[:_KEEP_TEXT],
            "line": self._source.own_line(reversed(frames)),
        }


def _go_on(number: int, frame: types.FrameType | None) -> None:
    """SIGURG: the thread has heard it; the script goes on."""
