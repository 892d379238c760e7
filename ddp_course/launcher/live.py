"""One launch under way: started, listened to, signalled, ended, and its end recorded."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ddp_course import disk
from ddp_course.errors import CannotRun, CourseError
from ddp_course.launcher.plan import Plan
from ddp_course.observe import ledger, output
from ddp_course.process import guard, warm
from ddp_course.run.failure import final_state
from ddp_course.run.folder import no_room
from ddp_course.run.run import Run

POLL_S = 0.04  # how often a live run's files are read: well below the 0.2 s that a reader notices
_IDLE_POLL_S = 0.1  # the same after a second without anything new: the job needs the cores
_HOSTS = 2  # warm hosts that are tried before a launch is given up
_START_S = 120.0  # for a new warm host to import torch, on a busy machine
_TELL_S = 2.0  # for the ranks to write their ledgers, on a busy machine; it takes some 20 ms
_DUMP_S = 1.0  # for the ranks to write their stacks before the end
_END_S = 20.0  # for a launch to end when it is told to; it takes 2 s if its supervisor lives


class _NotTaken(Exception):
    """The warm host has gone before it took the launch; another one may."""


class Launch:
    """One launch, in the launcher's thread; `stop`, `signal`, `ask` may come from any thread."""

    def __init__(self, plan: Plan, run: Run) -> None:
        self.run = run
        self.plan = plan
        self._observed = output.Observed()
        self._deaths: list[dict[str, Any]] = []  # of every start, with the time of day
        self._ended_by = ""  # "stopped" or "time-out", if it did not end by itself
        self._exit: int | None = None
        self._give_up_s = math.inf
        self._told: dict[int, tuple[int, int]] | None = None  # the ledgers before they were asked
        self._probing = False  # whether they were asked because nothing else moves
        self._calls: dict[int, int] = {}  # {rank: collectives issued} when they were asked last
        self._link: socket.socket | None = None
        self._guard: subprocess.Popen[bytes] | None = None  # of a plain launch
        self._buffer = b""
        self._heard = False  # whether a supervisor or guard has said anything
        self._news = False  # something changed outside the launcher's thread
        self._lock = threading.Lock()
        if run.control is not None:
            run.control.stop, run.control.signal = self.stop, self.signal
            run.control.node, run.control.ask = self.move_node, self.ask

    def perform(self) -> None:
        """Carry it out, from start to record; whatever happens, the run ends."""
        run, error = self.run, ""
        run.begin()
        try:
            if not self._ended_by:
                guard.end_leftovers(run.folder.parent)
                self._carry_out()
        except (OSError, CourseError) as problem:
            error = str(problem)
        except Exception as problem:
            error = _defect(problem)
        finally:
            if self._link is not None:
                self._link.close()
            if self._guard is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._guard.wait(5)
        try:
            run.poll(last=True)
            self._finish(error)
        except Exception as problem:  # whoever waits for this run must not wait for ever
            told = {"rank": None, "what": _defect(problem), "kind": "launcher"}
            run.close({"ended": "failed", "wall_s": run.elapsed_s, "failure": told})

    # From any thread

    def stop(self, why: str) -> None:
        """End it; before the start too."""
        with self._lock:
            if not self._ended_by:
                self._ended_by = why
                self.run.stop_s = self.run.elapsed_s
            self._give_up_s = min(self._give_up_s, time.monotonic() + _END_S)
            self._send(stop=True)

    def signal(self, rank: int, number: int) -> None:
        """Signal one rank, and remember that it was the learner who did."""
        lane = self.run.lanes()[rank]
        with self._lock:
            self._send(rank=rank, signal=int(number))
            if number == signal.SIGSTOP and lane.state == "running":
                lane.state = "paused"
                self._observed.paused.add(rank)
            elif number == signal.SIGCONT and lane.state == "paused":
                lane.state = "running"
                self._observed.paused.discard(rank)
            elif number == signal.SIGKILL:
                self._observed.killed[rank] = number
        self._news = True

    def move_node(self, how: str) -> None:
        """Lose the last node or start it again, and remember that it was the learner who did."""
        plan = self.plan
        with self._lock:
            self._send(node=how)
            if how == "lose":
                last = range(plan.ranks - plan.ranks // plan.nodes, plan.ranks)
                self._observed.killed.update(dict.fromkeys(last, int(signal.SIGKILL)))
                for rank in last:
                    self.run.lanes()[rank].state = "killed"
        self._news = True

    def ask(self, patience_s: float) -> bool:
        """Make the ranks that run write their ledgers now; whether all did."""
        before = ledger.written(self.run.folder)
        asked = self._running()
        with self._lock:
            for rank in asked:
                self._send(rank=rank, signal=int(signal.SIGURG))
        deadline = time.monotonic() + patience_s
        while not (answered := self._answered(asked, before)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return answered and bool(asked)

    def _running(self, *states: str) -> list[int]:
        return [n.rank for n in self.run.lanes() if n.pid and n.state in ("running", *states)]

    def _answered(self, asked: list[int], before: Mapping[int, tuple[int, int]]) -> bool:
        """Whether those who were asked, and still live, have written their ledgers since."""
        now = ledger.written(self.run.folder)
        waiting = set(asked) & set(self._running("paused"))
        return self.run.done or all(now.get(rank) != before.get(rank) for rank in waiting)

    # In the launcher's thread

    def _carry_out(self) -> None:
        for _ in range(_HOSTS):
            try:
                self._start()
                self._listen()
                return
            except _NotTaken:
                if self._link is not None:
                    self._link.close()
                warm.close()
        raise warm.no_host()

    def _start(self) -> None:
        plan, folder = self.plan, self.run.folder
        env, log = plan.environment(folder), folder / "torchrun.log"
        stdin = _standard_input() if plan.share_stdin else subprocess.DEVNULL
        if plan.warm:
            request = {
                "env": env,
                "ranks": plan.ranks,
                "nodes": plan.nodes,
                "cwd": str(plan.cwd),
                "log": str(log),
                "torchrun_args": plan.torchrun_args,
                "rank_words": plan.rank_words,
            }
            link = warm.connect(env, request, [stdin] if stdin >= 0 else [])
        else:
            torchrun = [sys.executable, "-m", "torch.distributed.run", *plan.torchrun_args]
            with open(log, "wb") as said:
                self._guard, link = guard.start(
                    [*torchrun, *plan.script_and_words],
                    kind="launch",
                    nodes=plan.nodes,
                    env=env,
                    cwd=plan.cwd,
                    stdin=stdin,
                    output=said,
                )
        with self._lock:
            self._link = link
            if self._ended_by:
                self._send(stop=True)

    def _listen(self) -> None:
        run, plan = self.run, self.plan
        starting = plan.warm  # the limit is the job's; a host that imports torch has its own
        deadline = time.monotonic() + max(plan.limit_s, _START_S * starting)
        last_news = ask_again = time.monotonic()
        waiter = select.poll()  # select() itself refuses descriptors above 1023
        waiter.register(_known(self._link), select.POLLIN)
        while self._exit is None:
            busy = self._told is not None or time.monotonic() - last_news < 1
            patience_s = POLL_S if busy else _IDLE_POLL_S
            changed = bool(waiter.poll(patience_s * 1000)) and self._hear()
            progress, now = run.poll(), time.monotonic()
            if progress or changed or self._news:
                self._news, last_news = False, now
                run.changed()
            if starting and self._heard:
                starting, deadline = False, now + plan.limit_s
            elif progress and plan.while_idle and not (self._ended_by or self._probing):
                deadline = max(deadline, now + plan.limit_s)
            if self._told is not None and self._answered(self._running("paused"), self._told):
                deadline = now
            if now >= deadline:
                deadline = self._time_is_up(now)
            if self._ended_by and plan.warm and not self._heard:
                return  # the host still imports torch; it will find the link closed
            if now > ask_again + 0.5 and not plan.warm:
                self._send(who=True)
                ask_again = now
            if now > self._give_up_s:
                self._end_by_force()
                raise CannotRun(
                    "the launch did not end when it was told to, and was ended by force"
                )

    def _time_is_up(self, now: float) -> float:
        """First ask every rank for its ledger, then for its stack, then stop; returns when to act.

        SIGCONT lets a paused rank answer.
        """
        if self.plan.while_idle and not self._ended_by:
            if not self._probing:
                self._probing, self._told = True, ledger.written(self.run.folder)
                self._signal_all(signal.SIGURG)
                return now + _TELL_S
            self._probing, self._told = False, None
            if self._communicated():
                return now + self.plan.limit_s
        if not self._ended_by:
            self._ended_by, self.run.dump_s = "time-out", self.run.elapsed_s
            self._told = ledger.written(self.run.folder)
            halted = {lane.rank for lane in self.run.lanes() if output.is_halted(lane.pid)}
            self._observed.halted = halted - self._observed.paused
            self._signal_all(signal.SIGURG, signal.SIGCONT)
            return now + _TELL_S
        if self._told is not None and self._ended_by == "time-out":
            self._told = None
            self._signal_all(signal.SIGABRT, signal.SIGCONT)
            return now + _DUMP_S
        self.stop(self._ended_by)
        return math.inf

    def _communicated(self) -> bool:
        """Whether the ranks have issued any collective since they were asked before."""
        before, self._calls = self._calls, ledger.calls(self.run.folder)
        return self._calls != before

    def _end_by_force(self) -> None:
        """Its supervisor does not act: perhaps it was stopped. End what is below it from here."""
        if self._guard is None:
            warm.close()
            return
        for pid in (*guard.descendants(self._guard.pid), self._guard.pid):
            guard.send_signal(pid, signal.SIGKILL)

    def _signal_all(self, *numbers: int) -> None:
        for rank in range(self.plan.ranks):
            for number in numbers:
                self._send(rank=rank, signal=int(number))

    def _send(self, **message: Any) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):  # it has just ended; _listen will hear it
                self._link.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> bool:
        try:
            piece = _known(self._link).recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece and self.plan.warm and not self._heard:
            raise _NotTaken
        if not piece:
            raise CannotRun("the launch's guard was killed; its processes went with it")
        self._heard = True
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return True

    def _note(self, message: dict[str, Any]) -> None:
        run = self.run
        if "exit" in message:
            self._exit = os.waitstatus_to_exitcode(message["exit"])
        if not 0 <= message.get("rank", -1) < self.plan.ranks:
            return
        lane = run.lanes()[message["rank"]]
        if "status" in message:
            lane.exit_code = os.waitstatus_to_exitcode(message["status"])
            lane.state = final_state(lane.exit_code, finished=False)
            self._observed.deaths.append((run.elapsed_s, lane.rank, lane.exit_code))
            self._deaths.append(
                {"t": time.time(), "rank": lane.rank, "attempt": lane.attempt}
                | {"exit_code": lane.exit_code}
            )
        elif lane.pid != message["pid"]:
            self._observed.started.add(lane.rank)
            if lane.pid is not None:
                lane.attempt, lane.last_line = lane.attempt + 1, ""  # what it said is in the output
            lane.pid, lane.state, lane.exit_code = message["pid"], "running", None
            run.state = "running"
            pids = {lane.rank: lane.pid for lane in run.lanes() if lane.pid}
            with contextlib.suppress(OSError):  # for a look from another process
                disk.write(run.folder / "live.json", json.dumps({"pids": pids}))

    def _finish(self, error: str) -> None:
        """Record how it ended; what went wrong is found out when somebody asks (Run.failure)."""
        run, lines = self.run, self.run.reader.lines
        ok = self._exit == 0 and not error
        told: dict[str, Any] | None = None
        if error:
            told = {"rank": None, "what": error, "kind": "launcher"}
        elif not ok and self._ended_by == "stopped":
            told = {"rank": None, "what": "stopped by you", "kind": "stopped"}
        began = time.time() - run.elapsed_s
        result = {
            "ended": "finished" if ok else self._ended_by or "failed",
            "exit_code": self._exit,
            "exit_codes": output.exit_codes(lines, self._observed, self.plan.ranks, ok),
            "wall_s": run.elapsed_s,
            "failure": told,
            "deaths": self._deaths or output.deaths_told(lines, began),
            "observed": self._observed.record(),
            "began": began,
        }
        try:
            disk.write(run.folder / "result.json", json.dumps(result, indent=1) + "\n")
        except OSError as problem:
            print(f"ddp_course: {no_room(run.folder, problem)}", file=sys.stderr)
            run.unrecorded = f"the run cannot be recorded: {problem.strerror}"
            if told is not None:
                told["what"] += f"; {run.unrecorded}"
        run.close(json.loads(json.dumps(result)))


def _known(link: socket.socket | None) -> socket.socket:
    if link is None:
        raise CannotRun("the launch was not started")
    return link


def _standard_input() -> int:
    """The caller's standard input; an empty one where there is none that a process can inherit."""
    try:
        descriptor = sys.stdin.fileno()
        os.fstat(descriptor)
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
    return descriptor


def _defect(problem: Exception) -> str:
    return f"the launcher itself failed: {type(problem).__name__}: {problem}"
