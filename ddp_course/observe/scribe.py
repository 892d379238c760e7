"""scribe: a rank's own account of its collectives, left in the run's folder when the rank ends.

`begin` is called in every rank before the learner's script: by warm_host, or by the sitecustomize
of `rank_side/` in a plain launch. It acts only if the launcher set DDP_COURSE_SCRIBE. A ledger is
written when the rank exits, at an exception that nobody caught, at SIGTERM (torchrun ends the
others so), when C++ terminates (Gloo, on a size that differs), and at SIGURG, which asks for it and
changes nothing else: `ledger-<rank>-<attempt>.json`, read by ddp_course.observe.ledger.

    what        torch's flight recorder, which Gloo keeps too: every collective, with the Python
                frames that issued it (torch/csrc/distributed/c10d/FlightRecorder.hpp). On Gloo
                the state is always "scheduled"; send, recv and monitored_barrier are left out of
                it, so they are noted here, where ProcessGroup offers them to Python.
    how         A thread waits on the pipe of signal.set_wakeup_fd. The C-level handler writes to
                it also while the main thread waits in C++, where no Python handler would run.
    invisible   The rank ends by the same signal or exit code as without it; forked children
                inherit nothing of it; a SIGTERM handler of the script is the script's.

Standard library only, and nothing of ddp_course: a script may have its own.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import linecache
import math
import os
import pickle
import re
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

VERSION = 1
ANY_RANK = -1  # the peer of a receive from whoever sends
KEEP = 500  # entries that are written, the last ones
_KEEP_SIZES = 64  # of one entry's tensors
_OUTER, _INNER = 20, 40  # frames of a stack that are kept: the learner's own may be far outside
_KEEP_TEXT = 2000  # characters of an exception's text
_FRAMES_OF_ISSUE = 24  # noted with a send or recv
_HEARD = signal.SIGTERM, signal.SIGURG
_ASKED = "DDP_COURSE_SCRIBE"
_C10D = "torch.distributed.distributed_c10d"
_DDP = "torch.nn.parallel.distributed"
_KEEP_NUMBERS = 1 << 16  # of one parameter that go into a digest, evenly spread
_APART = "post_localSGD_hook", "noop_hook"  # communication hooks whose replicas differ by design
_DTYPES = {  # c10::toString of a ScalarType -> torch's name
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "Float": "float32", "Double": "float64", "Bool": "bool",
    "BFloat16": "bfloat16", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
    "float32": 4, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip

_NOT_PYTHON = "??", ".so", ".c", ".cc", ".cpp", ".h"

Frame = tuple[str, int, str]  # file, line, function
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
        _Scribe(env, leaves_by_exit=leaves_by_exit).start()


class _Scribe:
    def __init__(self, env: Mapping[str, str], *, leaves_by_exit: bool) -> None:
        self._rank = int(env["RANK"])
        self._attempt = int(env.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._world_size = int(env.get("WORLD_SIZE", "0"))
        self._folder = os.path.abspath(env["DDP_COURSE_RUN"])
        self._pid, self._cwd, self._leaves_by_exit = os.getpid(), os.getcwd(), leaves_by_exit
        self._lock, self._forking = threading.RLock(), threading.local()
        self._noted: collections.deque[dict[str, Any]] = collections.deque(maxlen=2000)
        self._groups: dict[str, list[int]] = {}
        self._forwards: collections.deque[tuple[float, int]] = collections.deque(maxlen=2000)
        self._replicas: list[weakref.ref[Any]] = []  # models that were wrapped in DDP
        self._digests: dict[str, str] = {}
        self._numbers: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._end: dict[str, Any] = {}  # why, t, stack and exception of an end that began before
        self._own: dict[str, bool] = {}  # whether a file is the learner's
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
        threading.Thread(target=self._wait, name="ddp-course-scribe", daemon=True).start()
        sys.excepthook = self._on_exception
        os._exit = self._on_exit  # type: ignore[assignment]
        atexit.register(self._at_exit)
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._forget
        )
        for name, watch in ((_C10D, self._watch_torch), (_DDP, self._watch_replicas)):
            if name in sys.modules:
                watch()
            else:
                sys.meta_path.insert(0, _AfterImport(name, watch))

    # When to write

    def _wait(self) -> None:
        while True:
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
                    "stack": self._stack(_frames_of_traceback(trace)),
                }
            self._write("exception", 1)

    def _on_exit(self, status: int) -> None:
        self._write("exit", status)
        self._exit(status)

    def _at_exit(self) -> None:
        self._restore_terminate()  # from here on a thread that wants Python's lock never gets it
        if not self._leaves_by_exit:
            self._write("exit", 1 if self._end.get("why") == "exception" else None)
            self._restore_sigterm()  # while Python shuts down, nobody would hear it

    def _on_cpp_terminate(self) -> None:
        self._write("aborted")
        if self._terminate_pointer:
            _Terminate(self._terminate_pointer)()  # it says what was thrown, and aborts

    def _forget(self) -> None:
        """In a forked child: be as a child of a rank without a scribe."""
        with contextlib.suppress(Exception):
            if self._writer >= 0:  # not so in a child's child
                self._undo()
        self._after_fork()

    def _undo(self) -> None:
        reader, writer = self._reader, self._writer
        self._reader = self._writer = -1
        atexit.unregister(self._at_exit)
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

    def _watch_torch(self) -> None:
        with contextlib.suppress(Exception):
            self._set_terminate()
        with contextlib.suppress(Exception):
            from torch._C._distributed_c10d import ProcessGroup, Reducer

            for name in ("send", "recv", "recv_anysource", "monitored_barrier"):
                setattr(ProcessGroup, name, self._noting(name, getattr(ProcessGroup, name)))
            # DDP calls it at the end of a forward.
            noting: Any = _NotingLookups(Reducer.prepare_for_backward, self._forwards)
            Reducer.prepare_for_backward = noting  # type: ignore[method-assign]
        with contextlib.suppress(Exception):
            c10d, distributed = sys.modules[_C10D], sys.modules["torch.distributed"]
            destroy = self._before_destroy(c10d.destroy_process_group)
            for module in (c10d, distributed):
                module.destroy_process_group = destroy  # type: ignore[attr-defined]

    def _before_destroy(self, destroy: Callable[..., None]) -> Callable[..., None]:
        """The last moment at which a training's models are surely there, and its groups."""

        @functools.wraps(destroy)
        def destroy_process_group(*args: Any, **kwargs: Any) -> None:
            self._digests = self._digests or self._digest_replicas()
            destroy(*args, **kwargs)

        return destroy_process_group

    def _watch_replicas(self) -> None:
        """Remember every model that is wrapped in DDP, without keeping it alive."""
        with contextlib.suppress(Exception):
            ddp = sys.modules[_DDP].DistributedDataParallel

            def new(cls: type, *args: Any, **kwargs: Any) -> Any:
                model: Any = object.__new__(cls)
                self._replicas.append(weakref.ref(model))
                return model

            new.__signature__ = inspect.signature(ddp.__init__)  # type: ignore[attr-defined]
            ddp.__new__ = new

    def _digest_replicas(self) -> dict[str, str]:
        """{a DDP model: a digest of its parameters}, of those that live, on the CPU."""
        found: dict[str, list[str]] = {}
        with contextlib.suppress(Exception):
            for model in filter(None, [reference() for reference in self._replicas]):
                with contextlib.suppress(Exception):  # one that was not wrapped to the end
                    name, digest = self._digest_of(model)
                    found.setdefault(name, []).append(digest)
        return {name: " ".join(sorted(digests)) for name, digests in found.items() if all(digests)}

    def _digest_of(self, model: Any) -> tuple[str, str]:
        """Its name, the same on all ranks of its group, and its digest ("": not comparable)."""
        torch, ignored = sys.modules["torch"], model.parameters_to_ignore
        hooks = {getattr(hook, "__name__", "") for hook, _ in model._comm_hooks}
        ranks = sys.modules[_C10D].get_process_group_ranks(model.process_group)
        where = "" if len(ranks) == self._world_size else f" on ranks {', '.join(map(str, ranks))}"
        name, digest = f"DDP({type(model.module).__name__}){where}", hashlib.sha256()
        for key, parameter in model.module.named_parameters():
            if parameter.requires_grad and key not in ignored:
                if parameter.device.type != "cpu" or hooks & set(_APART):
                    return name, ""
                numbers = parameter.detach().reshape(-1)
                numbers = numbers[:: max(1, numbers.numel() // _KEEP_NUMBERS)].contiguous()
                digest.update(f"{key} {tuple(parameter.shape)} {parameter.dtype}".encode())
                digest.update(numbers.view(torch.uint8).numpy().tobytes())
        return name, digest.hexdigest()[:16]

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

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(group: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(name, group, args)
            return method(group, *args, **kwargs)

        noted.__name__, noted.__doc__ = name, method.__doc__
        return noted

    def _note(self, name: str, group: Any, args: tuple[Any, ...]) -> None:
        with contextlib.suppress(Exception):
            tensors: Sequence[Any] = () if name == "monitored_barrier" else args[0]
            peer = args[1] if name in ("send", "recv") else ANY_RANK
            op = name.removesuffix("_anysource")
            tag = args[-1] if tensors else 0
            members = self._members_of(group)
            if 0 <= peer < len(members):
                peer = members[peer]  # from here on its global rank
            key = op, group.group_name, peer, tag
            self._numbers[key] += 1
            self._noted.append(
                {
                    "n": self._numbers[key] if tensors else 0,
                    "t": time.time(),
                    "op": op,
                    "group": group.group_name,
                    "sizes": [list(tensor.shape) for tensor in tensors],
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
                    "p2p": {"peer": peer, "direction": op, "tag": tag} if tensors else None,
                    "frames": _frames_of(sys._getframe(2), _FRAMES_OF_ISSUE),
                }
            )

    def _members_of(self, group: Any) -> Sequence[int]:
        """The global ranks of a group, in its order; remembered, for a group may be destroyed."""
        if group.group_name not in self._groups:
            ranks = sys.modules[_C10D]._world.pg_group_ranks.get(group, {})
            self._groups[group.group_name] = sorted(ranks, key=ranks.__getitem__)
        return self._groups[group.group_name]

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
            end["stack"] = self._stack(reversed(_frames_of(main, 10_000)))
            with contextlib.suppress(Exception):
                end["handling"] = self._handling()
        elif not self._digests:
            self._digests = self._digest_replicas()
        if why == "terminated" and not self._end:
            self._end = end
        entries: list[dict[str, Any]] = []
        dropped, groups = 0, {}  # type: int, dict[str, list[int]]
        with contextlib.suppress(Exception):  # another torch may record otherwise
            entries, dropped, groups = self._entries()
        return {
            "version": VERSION,
            "rank": self._rank,
            "attempt": self._attempt,
            "world_size": self._world_size,
            "exit_code": exit_code,
            **(self._end or end),
            "groups": groups,
            "entries": entries,
            "dropped": dropped,
            "digests": self._digests,
        }

    def _entries(self) -> tuple[list[dict[str, Any]], int, dict[str, list[int]]]:
        c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
        if c10d is None or _C10D not in sys.modules:
            return [], 0, {}
        groups = {**self._groups, **_ranks_of_groups()}
        recorded, lost = _recorded(c10d)
        merged = sorted(
            [*map(self._collective, recorded), *self._pairs(recorded)],
            key=lambda entry: float(entry["t"]),
        )
        parts = Parts(list(self._forwards))
        for entry in merged:
            entry["part"] = parts.of(entry, entry["frames"])
        _number(merged)
        total = lost + len(recorded) + self._numbers.total()
        kept = merged[-KEEP:]
        for entry in kept:
            entry["line"] = self._line(self._innermost(entry.pop("frames")))
        return kept, total - len(kept), groups

    def _collective(self, raw: dict[str, Any]) -> dict[str, Any]:
        op, *ends = str(raw["profiling_name"]).rpartition(":")[2].split()  # NCCL: "send 0->1"
        which = "output" if op == "scatter" else "input"
        dtypes = [_DTYPES.get(name, name.lower()) for name in raw[f"{which}_dtypes"]]
        entry = _entry(
            op, str(raw["process_group"][0]), raw[f"{which}_sizes"], dtypes,
            raw["time_created_ns"] / 1e9,
        )  # fmt: skip
        entry["n"] = raw["p2p_seq_id" if raw["is_p2p"] else "collective_seq_id"]
        if raw["is_p2p"] and ends:
            group, peer = self._groups.get(entry["group"], ()), int(re.split("->|<-", ends[0])[1])
            peer = group[peer] if peer < len(group) else peer
            entry["p2p"] = {"peer": peer, "direction": op, "tag": 0}
        entry["state"] = str(raw["state"])
        if raw.get("time_discovered_completed_ns"):
            entry["end"] = raw["time_discovered_completed_ns"] / 1e9
        entry["frames"] = [(f["filename"], f["line"], f["name"]) for f in raw["frames"]]
        return entry

    def _pairs(self, recorded: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The sends, receives and monitored barriers that the flight recorder leaves out."""
        if any(raw["is_p2p"] for raw in recorded):
            return  # NCCL's records hold them
        for note in list(self._noted):
            entry = _entry(note["op"], note["group"], note["sizes"], note["dtypes"], note["t"])
            yield {**entry, **{name: note[name] for name in ("n", "p2p", "frames")}}

    def _handling(self) -> dict[str, Any] | None:
        """The exception for which the main thread is in an `except` or `finally`."""
        known: dict[int, Any] = sys._current_exceptions()
        error = known.get(threading.main_thread().ident or 0)
        if isinstance(error, tuple):  # Python 3.11
            error = error[1]
        return None if error is None else self._exception(type(error), error, error.__traceback__)

    def _exception(self, kind: type, error: BaseException, trace: Any) -> dict[str, Any]:
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        frames = list(_frames_of_traceback(trace))
        return {
            "type": module + kind.__qualname__,
            "text": str(error)[:_KEEP_TEXT],
            "line": self._line(self._innermost(list(reversed(frames)))),
        }

    def _innermost(self, frames: Sequence[Frame]) -> Frame | None:
        """The first of these frames, innermost first, that is the learner's own code."""
        return next((f for f in frames if f[1] > 0 and self._is_own(f[0])), None)

    def _is_own(self, file: str) -> bool:
        if file not in self._own:
            self._own[file] = _is_own(os.path.join(self._cwd, file)) and not file.startswith("<")
        return self._own[file]

    def _line(self, frame: Frame | None) -> dict[str, Any] | None:
        if frame is None:
            return None
        file, line, function = frame
        path = file if file.startswith("<") else os.path.normpath(os.path.join(self._cwd, file))
        code = linecache.getline(path, line).strip()[:200]
        return {"file": path, "line": line, "function": function, "code": code}

    def _stack(self, frames: Iterable[Frame]) -> list[dict[str, Any]]:
        told = [self._line(frame) for frame in frames if not _is_ours(frame[0])]
        kept = [line for line in told if line is not None]
        return kept if len(kept) <= _OUTER + _INNER else kept[:_OUTER] + kept[-_INNER:]


class _NotingLookups:
    """A method that notes when it is looked up, and stays out of the tracebacks of its calls."""

    def __init__(self, method: Any, notes: collections.deque[tuple[float, int]]) -> None:
        self._method, self._notes = method, notes

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is not None:
            self._notes.append((time.time(), id(owner)))
        return self._method.__get__(owner, kind)


class Parts:
    """What an entry is inside DDP, from the frames that issued it; None where that is not sure.

    The order of a step's collectives is that of DDP's reducer (torch/csrc/distributed/c10d/
    reducer.cpp): one all_reduce for each bucket, in order; after the first backward the buckets are
    rebuilt, and two broadcasts tell how.

    forwards  when each forward of a model had ended, and whose it was: a backward starts anew
    """

    def __init__(self, forwards: Sequence[tuple[float, int]]) -> None:
        self._forwards = collections.deque(forwards)
        self._one_model = len({reducer for _, reducer in forwards}) == 1
        self._next: int | None = None  # bucket, since the last forward; None before the first one
        self._joined: collections.Counter[str] = collections.Counter()

    def of(self, entry: Mapping[str, Any], frames: Sequence[Frame]) -> str | None:
        group, names = str(entry["group"]), [function for _, _, function in frames]
        inside = {function for file, _, function in frames if "torch" in file}
        if not names:
            return None
        if names[0] == "_match_all_reduce_for_bwd_pass":  # by a rank that has no inputs left
            self._joined[group] += 1
            return f"gradient bucket {self._joined[group] - 1}"
        self._joined[group] = 0
        if names[0] == "_verify_param_shape_across_processes":
            return "parameter check at construction"
        if "_sync_params_and_buffers" in inside:
            return "weights after Join" if "_sync_final_model" in inside else (
                "weights at construction" if _in_ddp(frames) else None
            )  # fmt: skip
        if names[0] in ("_pre_forward", "_rebuild_buckets") and entry["op"] == "broadcast":
            return "bucket rebuild"
        for function, part in _PARTS.items():
            if function in inside:
                return part
        if names[0] == "_engine_run_backward" and entry["op"] == "all_reduce":
            unused = entry["dtypes"] == ["int32"]
            return "map of unused parameters" if unused else self._bucket(entry["t"])
        if "_allreduce_fut" in inside:  # DDP's own communication hooks, once for each bucket
            return self._bucket(entry["t"])
        return None

    def _bucket(self, t: float) -> str:
        while self._forwards and self._forwards[0][0] <= t:
            self._forwards.popleft()
            self._next = 0
        if self._next is None or not self._one_model:
            return "gradient bucket"
        self._next += 1
        return f"gradient bucket {self._next - 1}"


_PARTS = {  # a function of torch that issued a collective, at any depth -> what it was for
    "_find_common_rank": "whose buffers count, for Join",
    "_sync_module_buffers": "buffers before forward",
    "_check_global_requires_backward_grad_sync": "whether gradients are averaged, for Join",
    "_notify_procs_to_terminate": "that inputs are exhausted, for Join",
    "notify_join_context": "who still has inputs, for Join",
    "_get_num_nonjoined_procs": "how many ranks have inputs left, for Join",
    "all_gather_object": "inside all_gather_object",
    "gather_object": "inside gather_object",
    "scatter_object_list": "inside scatter_object_list",
    "broadcast_object_list": "inside broadcast_object_list",
    "foreach_all_gather": "gathering of sharded weights",
    "foreach_reduce": "scattering of sharded gradients",
    "reduce_scatter": "how Gloo does reduce_scatter",
    "reduce_scatter_tensor": "how Gloo does reduce_scatter",
    "reduce_scatter_single": "how Gloo does reduce_scatter",
}


class _AfterImport(importlib.abc.MetaPathFinder):
    """Call back once, right after a module has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                del loader.exec_module
                execute(module)
                self._then()

            loader.exec_module = exec_module
        return spec


class _PlainData(pickle.Unpickler):
    """torch's own record of this process, in memory; it holds no object."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a flight record")


def _recorded(c10d: Any) -> tuple[list[dict[str, Any]], int]:
    """What torch has recorded, and how many records it has dropped."""
    torch: dict[str, Any] = vars(sys.modules["torch"])
    dumps = [c10d._dump_fr_trace]
    if torch["cuda"].is_initialized():  # NCCL has a recorder of its own; NOT VERIFIED on a GPU
        dumps.append(c10d._dump_nccl_trace)
    # To name the frames they ask for torch._inductor, which would be imported now: a second.
    stand_in = object()
    lazy = torch.setdefault("_inductor", stand_in) is stand_in
    try:
        records = [_PlainData(io.BytesIO(dump())).load().get("entries", []) for dump in dumps]
    finally:
        if lazy and torch.get("_inductor") is stand_in:
            del torch["_inductor"]
    dropped = sum(entries[0]["record_id"] for entries in records if entries)
    return [entry for entries in records for entry in entries], dropped


def _ranks_of_groups() -> dict[str, list[int]]:
    """{name of a process group of this rank: its global ranks}; none once they are destroyed."""
    with contextlib.suppress(Exception):
        world = sys.modules[_C10D]._world
        ranks_of = {group: world.pg_group_ranks[group] for group in world.pg_names}
        return {
            str(world.pg_names[group]): sorted(ranks, key=ranks.__getitem__)
            for group, ranks in ranks_of.items()
        }
    return {}


def _entry(
    op: str, group: str, sizes: Sequence[Any], dtypes: Sequence[str], t: float
) -> dict[str, Any]:
    if len(dtypes) == 1:
        width = [_BYTES.get(dtypes[0], 0)] * len(sizes)
    else:
        width = [_BYTES.get(dtype, 0) for dtype in dtypes]
    count = sum(math.prod(size) * one for size, one in zip(sizes, width, strict=False))
    return {
        "n": 0,
        "group": group,
        "op": op,
        "sizes": [list(size) for size in sizes[:_KEEP_SIZES]],
        "dtypes": list(dtypes[:_KEEP_SIZES]),
        "bytes": count,
        "t": t,
        "end": None,
        "state": "scheduled",
        "p2p": None,
    }


def _number(entries: Iterable[dict[str, Any]]) -> None:
    """Number the monitored barriers: torch counts them with the collectives of their group."""
    last: collections.Counter[str] = collections.Counter()
    for entry in entries:
        if entry["p2p"] is None:
            entry["n"] = last[entry["group"]] = entry["n"] or last[entry["group"]] + 1


def _in_ddp(frames: Sequence[Frame]) -> bool:
    return any(file.endswith(os.path.join("nn", "parallel", "distributed.py"))
               for file, _, _ in frames)  # fmt: skip


def _frames_of(frame: types.FrameType | None, most: int) -> list[Frame]:
    """Innermost first."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < most:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames


def _frames_of_traceback(trace: types.TracebackType | None) -> Iterator[Frame]:
    """Outermost first."""
    while trace is not None:
        code = trace.tb_frame.f_code
        yield code.co_filename, trace.tb_lineno, code.co_name
        trace = trace.tb_next


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_JOBS = os.path.join(_PACKAGE, "jobs")
_OURS = (
    os.path.join(_PACKAGE, "observe", "scribe.py"),
    os.path.join(_PACKAGE, "process", "host.py"),
)
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))


def _is_own(path: str) -> bool:
    """Whether a file is the learner's: not Python's, not installed, not ours (jobs are theirs)."""
    folders = path.split(os.sep)
    if path.endswith(_NOT_PYTHON):  # TORCH_FR_CPP_STACK=1 mixes the frames of C++ in
        return False
    if "site-packages" in folders or "dist-packages" in folders:
        return False
    if _within(path, _PACKAGE):
        return _within(path, _JOBS)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    return not _within(path, _STDLIB) and not (torch and _within(path, os.path.dirname(torch)))


def _is_ours(file: str) -> bool:
    return file in _OURS


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep)


def _go_on(number: int, frame: types.FrameType | None) -> None:
    """SIGURG: the thread has heard it; the script goes on."""
