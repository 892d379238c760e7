"""The script that a check's ranks run: import the learner's file, call its function, report.

Started by torchrun, once per rank, with the supervisor's socket in DDP_COURSE_CHECK_SOCKET. Only
here is torch imported. A rank leaves when the supervisor says so, not when it is done: a rank that
left early would make the others fail for a reason that is not the learner's.
"""

import argparse
import contextlib
import importlib.util
import linecache
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddp_course.checks.agreed import BACK
from ddp_course.checks.calling import Function, Tensors, attempt
from ddp_course.checks.evidence import SOCKET, Message, pack, split, unpack
from ddp_course.rank.place import my_place
from ddp_course.rank.report import run_rank

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=str, default="", help="the learner's file")
parser.add_argument("--function", type=str, default="", help="the function in it")
parser.add_argument("--exercise", type=str, default="", help="its stem")

MOST_FILE_BYTES = 16 << 20
MOST_STORE_S = 10.0  # then init_process_group waits, and says what for

MOST_ERROR, MOST_TRACEBACK = 2_000, 20_000  # characters that are sent


class Channel:
    """This rank's line to the supervisor. A thread reads it, so that a rank that waits in a
    collective can still say where."""

    def __init__(self) -> None:
        self.answer: Callable[[], dict[str, Any]] = lambda: {"cpu_s": 0.0}  # to "where"
        self._who = {"rank": int(os.environ["RANK"]), "attempt": attempt()}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ[SOCKET])
        self._lock = threading.Lock()
        self._came: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="ddp-course-channel", daemon=True).start()

    def send(self, event: str, tensors: Tensors | None = None, **fields: Any) -> None:
        fields = {"event": event, **self._who, **fields}
        with self._lock:
            self._socket.sendall(pack(Message(fields, tensors or {})))

    def receive(self) -> Message:
        """The next message. Raises EOFError when the supervisor is gone."""
        message = self._came.get()
        if message is None:
            raise EOFError("the supervisor is gone")
        return message

    def _listen(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while piece := self._socket.recv(1 << 16):
                body, buffer = split(buffer + piece)
                while body is not None:
                    message = unpack(body)
                    if message.fields.get("event") == "where":
                        self.send("at", **self.answer())
                    else:
                        self._came.put(message)
                    body, buffer = split(buffer)
        self._came.put(None)


class Counted:
    """The learner's function, with a count of the collectives, sends and receives inside it."""

    def __init__(self, function: Function, module: str) -> None:
        self._function, self._before = function, -1  # -1: not inside
        self._done = 0
        self.back = False  # whether it has been called, and has come back
        self.__module__ = module

    def __call__(self, *inputs: Any) -> Any:
        self._before, self.back = _started(), False
        try:
            return self._function(*inputs)
        finally:
            self._done, self._before, self.back = self.calls or 0, -1, True

    @property
    def calls(self) -> int | None:
        """None: this backend does not count all of them."""
        if dist.get_backend() != "gloo":
            return None
        return self._done + (_started() - self._before if self._before >= 0 else 0)


def _started() -> int:
    """How many collectives, sends and receives this process has started, by its groups' numbers."""
    groups: Any = dist.distributed_c10d._world.pg_map
    return sum(group._get_sequence_number_for_group() for group in groups)


class Whereabouts:
    """Where the main thread is, for another thread to ask. Made in the main thread."""

    def __init__(self, path: str) -> None:
        self._path, self._thread = path, threading.get_ident()
        self._began_s = self._cpu_s()
        self.function: Counted | None = None

    def say(self) -> dict[str, Any]:
        """The line of the learner's file, and the processor time and collectives until there."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        line = ""
        if frame is not None:
            text = linecache.getline(self._path, frame.f_lineno).strip()
            line = f"line {frame.f_lineno}: {text}"
        elif self.function and self.function.back:
            line = BACK
        calls = self.function.calls if self.function else None
        return {"line": line, "cpu_s": self._cpu_s() - self._began_s, "calls": calls}

    def _cpu_s(self) -> float:
        if hasattr(time, "pthread_getcpuclockid"):
            return time.clock_gettime(time.pthread_getcpuclockid(self._thread))
        return time.process_time()


def load(path: Path, function: str) -> Counted:
    """The learner's function. Whatever importing the file raises is the learner's to see."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.append(str(path.parent))  # other files beside it can be imported, and hide nothing
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise TypeError(f"{function} is {found!r:.80} in {path.name}: nothing that can be called")
    return Counted(found, path.stem)


def limit_files() -> None:
    """What never stops printing would fill the disk: no file of this rank may grow for ever."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        resource = importlib.import_module("resource")  # not on every system
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an OSError instead
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        least = MOST_FILE_BYTES if most == resource.RLIM_INFINITY else min(most, MOST_FILE_BYTES)
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))


def await_store() -> None:
    """Return when rank 0's store listens, where ranks may be started again and so do not use that
    of torchrun. Whoever asks for it earlier tries again only after half a second, or longer."""
    if os.environ["RANK"] == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + MOST_STORE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0):
            return
        time.sleep(0.005)


def main() -> None:
    args = parser.parse_args()
    limit_files()
    place = my_place()
    await_store()
    dist.init_process_group(place.backend, timeout=place.timeout, device_id=place.device_id)
    channel = Channel()
    channel.send("here")
    channel.receive()  # all ranks are known to the supervisor before any runs the learner's code
    whereabouts = Whereabouts(args.file)
    channel.answer = whereabouts.say
    try:
        function = load(Path(args.file), args.function)
        channel.send("loaded")
        inputs = channel.receive().tensors
        whereabouts.function = function
        call = importlib.import_module(f"ddp_course.exercises.{args.exercise}.drive")
        outputs = call.drive(function, inputs, place.device)
    except BaseException as error:
        now, text = time.monotonic(), "it has no text"
        with contextlib.suppress(Exception):
            text = str(error)
        said = f"{type(error).__name__}: {text}"
        channel.send(
            "raised", error=said[:MOST_ERROR], traceback=_own_frames(error, args.file), t=now
        )
    else:
        channel.send("returned", outputs, calls=function.calls, t=time.monotonic())
    with contextlib.suppress(EOFError):
        while channel.receive().fields.get("event") != "leave":
            pass
    # No destroy_process_group(): after a mistake it may wait for a collective that never ends.


def _own_frames(error: BaseException, path: str) -> str:
    """The traceback from the learner's file on, and no more of a long text than can be read."""
    frames = traceback.extract_tb(error.__traceback__)
    while frames and frames[0].filename != path:
        frames.pop(0)
    lines = traceback.format_list(frames)
    ending = "".join(traceback.format_exception_only(error))
    return "".join(lines)[: MOST_TRACEBACK // 2] + ending[: MOST_TRACEBACK // 2]


if __name__ == "__main__":
    run_rank(main)
