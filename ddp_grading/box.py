"""One submission in one sandbox: every exercise is a warm launch in it, judged from outside.

    grader ── Supervisor (a socket in the box) ──── rank 0 … N-1   evidence, never unpickled
       └───── line to inside.py ─ warm host ─ torchrun             starts and ends a launch

A box is used for the next exercise only after a plain "pass" or "fail", and if every process and
file of the last launch has gone; otherwise the next one gets a box of its own. Whatever the box
does wrong after the submission's code has begun is the submission's error; before, it is ours and
is tried once more.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddp_course.checks import judge
from ddp_course.checks.evidence import SOCKET
from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.manifest import Exercise
from ddp_course.checks.supervisor import Gathered, Supervisor, listen
from ddp_course.checks.verdict import Result, Verdict
from ddp_grading import sandbox
from ddp_grading.witness import heed, spare, traffic

_DRIVER = f"{sandbox.COURSE}/ddp_course/checks/driver.py"
_INSIDE = f"{sandbox.COURSE}/ddp_grading/inside.py"
_OURS = 3  # inside.py, the guard of its warm host, and the host
NOTE = "Graded in a sandbox; the values and the traffic between the ranks were judged outside it."
PROBE = """
import torch.distributed as dist

def sum_over_ranks(number):
    total = number.clone()
    dist.all_reduce(total)
    return total
"""
_LINE_BYTES = 1 << 20  # of one message from the box
_LOOK_S = 0.1  # how often the box is looked at while it works
_END_S = 15.0  # for a launch whose ranks have all answered to be gone
_DUMP_S = 2.0  # for the ranks to say where they are before the namespace is ended


@dataclass(frozen=True)
class Limits:
    """What a job may take. All seconds are generous: they end what hangs and judge no speed.

    start_s     for torch to be imported and every rank to come, on a busy machine
    import_s    for the submission's file to be imported
    patience_s  without any progress in its function
    job_s       for all of it, restarts included
    tasks       processes and threads of the whole box
    bytes       of memory of the whole box
    """

    start_s: float = 180.0
    import_s: float = 60.0
    patience_s: float = 10.0
    job_s: float = 180.0
    tasks: int = sandbox.TASKS
    bytes: int = sandbox.MEMORY


class BoxFailed(Exception):
    """The box failed before the submission's code ran in it: our fault, not the submission's."""


class Box:
    """A sandbox with a warm host. Start and use it in one thread that lives as long as it does.

    Raises BoxFailed or sandbox.NoSandbox if it does not start.
    """

    def __init__(
        self, image: Path, submission: Path, limits: Limits, *, hidden: Iterable[Path] = ()
    ) -> None:
        self._limits, self.used = limits, False  # whether the submission's code has run in it
        self._buffer, self._exited, self._stopped, self._log = b"", True, "", ""
        self._line: socket.socket | None = None
        self._sandbox: sandbox.Sandbox | None = None
        self._supervisor: Supervisor | None = None
        self._deadline, self._look_at = 0.0, 0.0
        self._codes: Any = {}
        self._sockets = Path(tempfile.mkdtemp(prefix="ddp-box-", dir=image.parent))
        try:
            with listen(self._sockets / "line", 1) as listener:
                sandbox.give(self._sockets, self._sockets / "line", submission)
                sandbox.give(*submission.iterdir())
                arguments = [_INSIDE, f"{sandbox.SOCKETS}/line"]
                self._sandbox = sandbox.Sandbox(
                    image,
                    submission,
                    self._sockets,
                    arguments,
                    hidden=hidden,
                    tasks=limits.tasks,
                    memory=limits.bytes,
                )
                self._line = self._accept(listener)
            self._own_processes = self._settled()
            self._own_files = self._sandbox.files()
        except BaseException:
            self.close()
            raise

    def run(self, exercise: Exercise, file: str, *, ranks: int | None = None) -> Gathered:
        """All evidence of one job on the submission's `file`. Raises BoxFailed."""
        assert self._sandbox is not None
        count = ranks or exercise.ranks
        limits = self._limits
        with (
            _watchdog(limits.start_s + limits.job_s + _END_S, self.kill),
            Supervisor(
                count,
                exercise.draw,
                restarts=exercise.restarts,
                folder=self._sockets,
                meter=self._sandbox.loopback_bytes,
            ) as supervisor,
        ):
            self._supervisor, self._exited, self._stopped, self._log = supervisor, False, "", ""
            self._deadline = time.monotonic() + self._limits.start_s
            place = Path(supervisor.env[SOCKET]).relative_to(self._sockets)
            sandbox.give(self._sockets / place, (self._sockets / place).parent)
            env = {
                SOCKET: f"{sandbox.SOCKETS}/{place}",
                "DDP_COURSE_TIMEOUT_S": str(self._limits.job_s),
            }
            arguments = [
                *("--file", f"{sandbox.SUBMISSION}/{file}"),
                *("--function", exercise.function, "--exercise", exercise.stem),
            ]
            self._tell(
                run={
                    "env": env,
                    "ranks": count,
                    "restarts": exercise.restarts,
                    "script": _DRIVER,
                    "arguments": arguments,
                }
            )
            gathered = supervisor.gather(self, patience_s=self._limits.patience_s)
            self.used = self.used or gathered.began
            self._stopped = self._stopped or self._sandbox.excess()
            if not gathered.began:
                raise BoxFailed(f"the ranks did not start: {self._words()}")
            answered = all(one.answered for one in gathered.observations)
            if not (answered or self._stopped or self._exited or self._sandbox.ended):
                _note_lines(gathered, self._stacks(), file)
            if not answered or self._stopped:
                return replace(gathered, stopped=self._stopped)
            deadline = time.monotonic() + _END_S
            while not self.done and time.monotonic() < deadline:
                time.sleep(0.01)
            for one in gathered.observations:
                ended = self._codes.get(str(one.rank)) if isinstance(self._codes, dict) else None
                if one.state == "gone" and type(ended) is int:  # for the reader only
                    one.followed, one.error = ended == -signal.SIGTERM, judge.ending(ended)
        return gathered

    @property
    def done(self) -> bool:
        """Whether the launch has ended or must be ended (the supervisor asks)."""
        assert self._sandbox is not None and self._supervisor is not None
        for message in self._hear():
            if "exit" in message:
                self._exited, self._log = True, str(message.get("log", ""))
                self._codes = message.get("codes") or {}
        now = time.monotonic()
        if self._supervisor.began and not self.used:
            self._deadline, self.used = now + self._limits.job_s, True
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._stopped = self._stopped or self._sandbox.excess()
        over = self._exited or self._sandbox.ended or bool(self._stopped)
        return over or now > self._deadline

    def is_clean(self) -> bool:
        """Whether the last launch has left neither a process nor a file."""
        assert self._sandbox is not None
        deadline = time.monotonic() + _END_S
        while self._exited and time.monotonic() < deadline and not self._sandbox.ended:
            if self._sandbox.processes() == self._own_processes:
                return self._sandbox.files() == self._own_files
            time.sleep(0.01)
        return False

    def kill(self) -> None:
        """End what runs in it, from another thread; whoever uses it will see that it has ended."""
        if self._sandbox is not None:
            self._sandbox.interrupt()

    def close(self) -> None:
        """End it and everything in it."""
        if self._line is not None:
            self._line.close()
        if self._sandbox is not None:
            self._sandbox.kill()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _accept(self, listener: socket.socket) -> socket.socket:
        assert self._sandbox is not None
        listener.settimeout(0.05)
        deadline = time.monotonic() + self._limits.start_s
        while time.monotonic() < deadline and not self._sandbox.ended:
            with contextlib.suppress(TimeoutError):
                line, _ = listener.accept()
                line.setblocking(False)
                return line
        raise BoxFailed(f"the sandbox's own process did not come: {self._words()}")

    def _settled(self) -> set[int]:
        """Our processes in it, once they are all there."""
        assert self._sandbox is not None
        deadline = time.monotonic() + self._limits.start_s
        ready = False
        while not ready or len(self._sandbox.processes()) != _OURS:
            ready = ready or any("ready" in message for message in self._hear())
            if time.monotonic() > deadline or self._sandbox.ended:
                raise BoxFailed(f"its warm host did not start: {self._words()}")
            time.sleep(0.01)
        return self._sandbox.processes()

    def _stacks(self) -> dict[str, str]:
        self._tell(stacks=True)
        deadline = time.monotonic() + _DUMP_S
        while time.monotonic() < deadline:
            for message in self._hear():
                if isinstance(message.get("stacks"), dict):
                    return {str(rank): str(text) for rank, text in message["stacks"].items()}
            time.sleep(0.01)
        return {}

    def _tell(self, **message: Any) -> None:
        assert self._line is not None
        with contextlib.suppress(OSError):  # it has gone, which `done` will see
            self._line.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> list[dict[str, Any]]:
        """What has come over the line. It may come from the submission: nothing is believed."""
        assert self._line is not None
        with contextlib.suppress(OSError):
            while len(self._buffer) < _LINE_BYTES and (piece := self._line.recv(1 << 16)):
                self._buffer += piece
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) >= _LINE_BYTES:
            self._stopped, self._buffer = "The sandbox's own process was taken over.", b""
        messages = []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    messages.append(message)
        return messages

    def _words(self) -> str:
        log = self._log.strip().splitlines()
        said = self._sandbox.last_words() if self._sandbox else ""
        return said or (log[-1] if log else "nothing was said")


@contextlib.contextmanager
def _watchdog(seconds: float, bite: Callable[[], None]) -> Iterator[None]:
    """Whatever the thread inside is doing or waiting for, `bite` is called when time is up."""
    timer = threading.Timer(seconds, bite)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _note_lines(gathered: Gathered, stacks: dict[str, str], file: str) -> None:
    """Where a rank was in its file, if its driver could not say so any more."""
    for one in gathered.observations:
        found = re.findall(
            rf'File "{sandbox.SUBMISSION}/{re.escape(file)}", line (\d+)',
            stacks.get(str(one.rank), ""),
        )
        if found and not one.answered and not one.line:
            one.line = f"line {found[0]}"


class Abandoned(Exception):
    """The desk was told to give up; there is no verdict."""


class Desk:
    """Judges one submission: keeps a box for it, and takes a new one when it must."""

    def __init__(
        self,
        image: Path,
        submission: Path,
        *,
        limits: Limits | None = None,
        hidden: Iterable[Path] = (),
    ) -> None:
        self._image, self._submission = image, submission
        self._limits, self._hidden = limits or Limits(), tuple(hidden)
        self._box: Box | None = None
        self._lock, self._abandoned = threading.Lock(), False

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def judge(self, exercise: Exercise, file: str, *, ranks: int | None = None) -> Verdict:
        """The verdict on one of its files. What is our fault is tried once more, in a new box.

        Raises sandbox.NoSandbox if this machine has none, Abandoned after `abandon`.
        """
        problem, failures = "", 0
        while failures < 2:
            fresh = self._box is None
            try:
                gathered = self._open().run(exercise, file, ranks=ranks)
            except (BoxFailed, OSError) as error:
                self.close()
                problem = str(error)
                failures += fresh  # a used box may have been spoiled by what ran in it before
                continue
            if self._abandoned:
                raise Abandoned
            verdict = _judged(exercise, gathered)
            if verdict.status not in ("pass", "fail") or not self._open().is_clean():
                self.close()
            if verdict.status != "infra":
                return verdict
            problem = verdict.results[0].message
            failures += 1
            self.close()
        return verdict_of(exercise, "infra", problem)

    def abandon(self) -> None:
        """End it, from another thread: whatever it is doing ends with Abandoned."""
        with self._lock:
            self._abandoned = True
            if self._box is not None:
                self._box.kill()

    def close(self) -> None:
        """End its box."""
        with self._lock:
            old, self._box = self._box, None
        if old is not None:
            old.close()

    def _open(self) -> Box:
        if self._box is None and not self._abandoned:
            new = Box(self._image, self._submission, self._limits, hidden=self._hidden)
            with self._lock:
                self._box = new
        if self._abandoned or self._box is None:
            raise Abandoned
        return self._box


def _judged(exercise: Exercise, gathered: Gathered) -> Verdict:
    """The verdict on a job's evidence. Evidence that breaks our own code is no result either."""
    try:
        found = judge.assess(exercise, gathered)
        found = heed(exercise, found, {"traffic": traffic(exercise, gathered)})
        found = spare(exercise, found, gathered)
    except Exception as error:
        said = f"The evidence could not be judged: {type(error).__name__}: {error}"
        return verdict_of(exercise, "infra", said)
    return _verdict(exercise, found)


def verdict_of(exercise: Exercise, status: str, message: str) -> Verdict:
    """The verdict of an exercise of which all checks have one status."""
    return _verdict(
        exercise,
        tuple(
            Result(check.id, check.title, status, check.points, message=message)
            for check in exercise.checks
        ),
    )


def probe(
    image: Path, *, held: Callable[[Desk], AbstractContextManager[object]] = nullcontext
) -> str:
    """Why a real job of two ranks does not work in a sandbox here, or "". `held` is around it, for
    who may have to abandon it."""
    with tempfile.TemporaryDirectory(prefix="ddp-probe-", dir=image.parent) as name:
        exercise = EXERCISES["ex00"]
        (Path(name) / "probe.py").write_text(PROBE)
        with Desk(image, Path(name)) as desk, held(desk):
            verdict = desk.judge(exercise, "probe.py", ranks=2)
    return "" if verdict.passed else next(one.message for one in verdict.results if one.message)


def try_sandbox() -> str:
    """What `doctor --grading` says. Raises sandbox.NoSandbox where grading cannot contain."""
    with sandbox.image() as image:
        problem = probe(image)
        found = {} if problem else sandbox.limits(image)
    if problem:
        raise sandbox.NoSandbox(
            f"A job of two ranks does not run in the sandbox: {problem}",
            action="see what bubblewrap needs on this system, or use --unsafe-no-sandbox for files "
            "that you have read and trust",
        )
    said = f"Grading can contain submissions: two ranks ran in {sandbox.version()}.\n"
    said += f"What a whole submission may take was tried: {sandbox.in_words(found)}."
    if len(found) < 2:
        said += (
            "\nWhat is only watched can slow this machine down before it is stopped. To have the "
            "kernel limit it, start the grader where it may make cgroups: as root outside a "
            "container, or with `systemd-run --user --scope`."
        )
    return said


def _verdict(exercise: Exercise, results: tuple[Result, ...]) -> Verdict:
    return Verdict(exercise.name, exercise.title, results, note=NOTE)
