"""launch(): run a job as a real torchrun, from the cell to the result.

    check the arguments → queue → start (warm, or a plain torchrun) → listen → judge the end → Run

Launches of one process run one after another, so that they do not disturb each other's timings.
In a notebook `launch` returns at once with a live Run; elsewhere it blocks and prints.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted
from ddp_course.diagnosis import diagnose as diagnosis
from ddp_course.disk import PACKAGE
from ddp_course.errors import BadArgument, CannotRun, CourseError
from ddp_course.launcher import catalogue
from ddp_course.launcher.session import session
from ddp_course.observe import ledger, output
from ddp_course.process import guard
from ddp_course.process import warm as warm_start
from ddp_course.run import run as runs
from ddp_course.run.run import Control, Run

MAX_RANKS = 128
MAX_NODES = 8
_HOSTS = 2  # warm hosts that are tried before a launch is given up
_POLL_S = 0.04  # how often a live run's files are read: well below the 0.2 s that a reader notices
_IDLE_POLL_S = 0.1  # the same after a second without anything new: the job needs the cores
_START_S = 120.0  # for a new warm host to import torch, on a busy machine
_TELL_S = 2.0  # for the ranks to write their ledgers, on a busy machine; it takes some 20 ms
_DUMP_S = 1.0  # for the ranks to write their stacks before the end
_END_S = 20.0  # for a launch to end when it is told to; it takes 2 s if its supervisor lives
# A node is taken for lost after 5 s without a sign of life. With fewer than 3 attempts a live one
# can be taken for dead, and two jobs come of it.
_NODE_PATIENCE = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5"
_RANK_SIDE = str(PACKAGE / "process" / "rank_side")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what a shell can set
_BYTES_PER_RANK = {"warm": 130 << 20, "plain": 500 << 20}  # measured with torch 2.14 on Linux

_SCRUBBED = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_SCRUBBED_PREFIXES = (
    "TORCHELASTIC_",
    "PET_",
    "DDP_COURSE_RUN",
    "DDP_COURSE_TRACE",
    "DDP_COURSE_RECORD",
)


def launch(
    job: str | Path,
    *,
    ranks: int = 2,
    nodes: int = 1,
    trace: bool = False,
    limit_s: float = 60,
    restarts: int = 0,
    warm: bool = True,
    env: Mapping[str, str] | None = None,
    wait: bool | None = None,
    argv: Sequence[str] = (),
    **knobs: Any,
) -> Run:
    """Run a job as `ranks` processes under torchrun on this machine, or several times as many.

    job       a job's name, the name of a cell saved by %%job, or a path to any .py file
    ranks     processes, 1 to 128 (torchrun's --nproc-per-node)
    nodes     torchruns, each with `ranks` processes, that meet as if each had a machine of its own
    trace     profile the steps that the job marks with report.traced()
    limit_s   seconds until the run is ended with every rank's stack (the first start of a warm
              host is not counted); a collective's own time-out is half of it
    restarts  torchrun's --max-restarts; with several nodes, the job then goes on when one is lost
    warm      False: a plain torchrun, as a shell would start it
    env       environment variables for this run
    wait      True: block and print; False: return at once; None: as fits (notebook or not)
    argv      words for the script as they are: positional arguments, flags of any form
    knobs     the job's own flags, checked before it starts: `bucket_mb=1` for `--bucket-mb 1`

    A failed job returns a failed Run. Raises BadArgument, before anything starts, for arguments
    that cannot work, and CannotRun if this machine cannot start or record a run.
    """
    if wait is not None:
        _check_switches(wait=wait)
    plan = _Plan(job, ranks, nodes, trace, limit_s, restarts, warm, env or {}, argv, knobs)
    run = plan.new_run()
    blocking = not session.in_background if wait is None else wait
    run.shown_in = session.cell
    _submit(plan, run)
    if blocking:
        _print_while_running(run)
    else:
        for listener in session.listeners:
            listener(run)
    return run


def caller_environment() -> dict[str, str]:
    """This process's environment without what another job's torchrun may have left in it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _SCRUBBED and not name.startswith(_SCRUBBED_PREFIXES)
    }


class _Plan:
    """A checked launch: everything that is known before it starts."""

    def __init__(
        self, job: str | Path, ranks: int, nodes: int, trace: bool, limit_s: float, restarts: int,
        warm: bool, env: Mapping[str, str], argv: Sequence[str], knobs: Mapping[str, Any],
    ) -> None:  # fmt: skip
        _check_switches(trace=trace, warm=warm)
        self.warm = warm and warm_start.available()
        _check_whole("nodes", nodes, 1, MAX_NODES)
        _check_whole("ranks", ranks, 1, MAX_RANKS // nodes)
        _check_whole("restarts", restarts, 0, 100)
        _check_seconds(limit_s)
        _check_env(env)
        _check_words(argv)
        self.script = catalogue.find_job(job)
        self.words = [*catalogue.flags(self.script, knobs), *argv]
        _check_memory(nodes * ranks, "warm" if self.warm else "plain")
        _prepare_data(self.script, knobs)
        self.script_and_words = catalogue.after_options(self.script, self.words)
        self.nodes, self.ranks = nodes, nodes * ranks  # of all nodes together
        self.trace, self.limit_s, self.restarts = trace, float(limit_s), restarts
        self.given_env, self.knobs = dict(env), dict(knobs)
        self.cwd, self._caller_env = _working_folder(), caller_environment()
        meeting = _meeting(nodes, elastic=restarts > 0) if nodes > 1 else ["--standalone"]
        self.patience = _NODE_PATIENCE if nodes > 1 and restarts else ""
        self.torchrun_args = [*meeting, "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
        if restarts:
            self.torchrun_args.append(f"--max-restarts={restarts}")

    @property
    def visible_env(self) -> dict[str, str]:
        """The variables that belong to the command: a shell needs them for the same job."""
        threads = self._caller_env.get("OMP_NUM_THREADS") or str(max(1, _cores() // self.ranks))
        env = {"OMP_NUM_THREADS": threads}  # torchrun would say 1 and print a warning
        loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
        if loopback:
            env["GLOO_SOCKET_IFNAME"] = loopback  # never a VPN's address
        if self.restarts:
            # Without it ranks of the second attempt read the first one's addresses (issue 135712).
            env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        return {**env, **self.given_env}

    @property
    def command(self) -> str:
        """The command, ready to paste into a shell."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.visible_env.items()]
        words = [sys.executable, "-m", "torch.distributed.run", *self.torchrun_args]
        parts = [*assignments, shlex.join(words)]
        if self.nodes > 1:  # what guard.environment_of says
            conf = filter(None, ["is_host=$((node==0))", self.patience])
            parts.append(f"--rdzv-conf={','.join(conf)}")
        text = " ".join([*parts, shlex.join(self.script_and_words)])
        if self.nodes > 1:
            each = " ".join(str(node) for node in range(self.nodes))
            text = f"for node in {each}; do {text} & done; wait"
        return (
            text if catalogue.is_ours(self.script) else f"cd {shlex.quote(str(self.cwd))} && {text}"
        )

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment of torchrun: the caller's, and ours."""
        return {
            **self._caller_env,
            "PYTHONFAULTHANDLER": "1",  # so that SIGABRT prints a rank's stack
            "PET_LOG_DIR": str(folder / "logs"),
            "PET_REDIRECTS": "3",
            "PET_SHUTDOWN_TIMEOUT": "3",  # a rank that is told to end first writes its ledger
            "PET_MONITOR_INTERVAL": "0.25" if self.warm else "0.1",  # warm: cut short by an end
            "DDP_COURSE_RUN": str(folder),
            "DDP_COURSE_RECORD": "1",
            "DDP_COURSE_TIMEOUT_S": str(self.limit_s / 2),
            **({"DDP_COURSE_TRACE": "1"} if self.trace else {}),
            **({"DDP_COURSE_NODES_HERE": str(self.nodes)} if self.nodes > 1 else {}),
            **({"PET_RDZV_CONF": self.patience} if self.patience else {}),
            **self.visible_env,
            **({} if self.warm else self._recorder_path()),
        }

    def _recorder_path(self) -> dict[str, str]:
        """What brings the recorder into ranks that Python starts anew."""
        path = self.visible_env.get("PYTHONPATH", self._caller_env.get("PYTHONPATH"))
        return {"PYTHONPATH": os.pathsep.join(filter(None, [_RANK_SIDE, path]))}

    def new_run(self) -> Run:
        folder = runs.new_folder(self.script.stem)
        asked = {
            "job": self.script.stem,
            "script": str(self.script),
            "ranks": self.ranks,
            "nodes": self.nodes,
            "knobs": {name: _plain(value) for name, value in self.knobs.items()},
            "argv": self.words,
            "command": self.command,
            "cwd": str(self.cwd),
            "env": self.visible_env,
            "warm": self.warm,
            "trace": self.trace,
            "limit_s": self.limit_s,
            "created": time.time(),
        }
        try:
            (folder / "run.json").write_text(json.dumps(asked, indent=1) + "\n")
            shutil.copyfile(self.script, folder / "job.py")
            return Run(folder, asked, Control())
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise runs.no_room(folder.parent, error) from error


class _NotTaken(Exception):
    """The warm host has gone before it took the launch; another one may."""


class _Launch:
    """One launch under way, in the launcher's thread."""

    def __init__(self, plan: _Plan, run: Run) -> None:
        self._plan, self._run = plan, run
        self._observed = output.Observed()
        self._deaths: list[dict[str, Any]] = []  # of every start, with the time of day
        self._ended_by = ""  # "stopped" or "time-out", if it did not end by itself
        self._exit: int | None = None
        self._give_up_s = math.inf
        self._told: dict[int, tuple[int, int]] | None = None  # the ledgers before they were asked
        self._link: socket.socket | None = None
        self._guard: subprocess.Popen[bytes] | None = None  # of a plain launch
        self._buffer = b""
        self._heard = False  # whether a supervisor or guard has said anything
        self._news = False  # something changed outside the launcher's thread
        self._lock = threading.Lock()
        assert run._control is not None
        run._control.stop = self.stop
        run._control.signal = self.signal
        run._control.node = self.move_node
        run._control.ask = self.ask

    def perform(self) -> None:
        run = self._run
        run._begin()
        error = ""
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
            run._poll(last=True)
            self._finish(error)
        except Exception as problem:  # whoever waits for this run must not wait for ever
            failure = runs.Failure(None, _defect(problem))
            run._close({"ended": "failed", "wall_s": run.elapsed_s, "failure": vars(failure)})

    def stop(self, why: str) -> None:
        """End it; safe from any thread, before the start too."""
        with self._lock:
            if not self._ended_by:
                self._ended_by = why
                self._run.stop_s = self._run.elapsed_s
            self._give_up_s = min(self._give_up_s, time.monotonic() + _END_S)
            self._send(stop=True)

    def signal(self, rank: int, number: int) -> None:
        """Signal one rank, and remember that it was the learner who did."""
        lane = self._run._lanes[rank]
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
        plan = self._plan
        with self._lock:
            self._send(node=how)
            if how == "lose":
                last = range(plan.ranks - plan.ranks // plan.nodes, plan.ranks)
                self._observed.killed.update(dict.fromkeys(last, int(signal.SIGKILL)))
                for rank in last:
                    self._run._lanes[rank].state = "killed"
        self._news = True

    def ask(self, patience_s: float) -> bool:
        """Make the ranks that run write their ledgers now; whether all did."""
        before = ledger.written(self._run.folder)
        asked = self._running()
        with self._lock:
            for rank in asked:
                self._send(rank=rank, signal=int(signal.SIGURG))
        deadline = time.monotonic() + patience_s
        while not (answered := self._answered(asked, before)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return answered and bool(asked)

    def _running(self, *states: str) -> list[int]:
        return [n.rank for n in self._run.lanes() if n.pid and n.state in ("running", *states)]

    def _answered(self, asked: list[int], before: Mapping[int, tuple[int, int]]) -> bool:
        """Whether those who were asked, and still live, have written their ledgers since."""
        now = ledger.written(self._run.folder)
        waiting = set(asked) & set(self._running("paused"))
        return self._run.done or all(now.get(rank) != before.get(rank) for rank in waiting)

    def _carry_out(self) -> None:
        for _ in range(_HOSTS):
            try:
                self._start()
                self._listen()
                return
            except _NotTaken:
                assert self._link is not None
                self._link.close()
                warm_start.close()
        raise warm_start.no_host()

    def _start(self) -> None:
        plan, folder = self._plan, self._run.folder
        env = plan.environment(folder)
        log = folder / "torchrun.log"
        if plan.warm:
            request = {
                "env": env,
                "ranks": plan.ranks,
                "nodes": plan.nodes,
                "cwd": str(plan.cwd),
                "log": str(log),
                "torchrun_args": plan.torchrun_args,
                "script": str(plan.script),
                "script_args": plan.words,
            }
            link = warm_start.connect(env, request)
        else:
            torchrun = [sys.executable, "-m", "torch.distributed.run", *plan.torchrun_args]
            command = [*torchrun, *plan.script_and_words]
            with open(log, "wb") as log_file:
                self._guard, link = guard.start(
                    command,
                    kind="launch",
                    nodes=plan.nodes,
                    env=env,
                    cwd=plan.cwd,
                    output=log_file,
                )
        with self._lock:
            self._link = link
            if self._ended_by:
                self._send(stop=True)

    def _listen(self) -> None:
        assert self._link is not None
        run, plan = self._run, self._plan
        starting = plan.warm  # the limit is the job's; a host that imports torch has its own
        deadline = time.monotonic() + max(plan.limit_s, _START_S * starting)
        ask_again = time.monotonic() + 0.5
        waiter = select.poll()  # select() itself refuses descriptors above 1023
        waiter.register(self._link, select.POLLIN)
        last_news = time.monotonic()
        while self._exit is None:
            busy = self._told is not None or time.monotonic() - last_news < 1
            patience_s = _POLL_S if busy else _IDLE_POLL_S
            changed = bool(waiter.poll(patience_s * 1000)) and self._hear()
            if run._poll() or changed or self._news:
                self._news, last_news = False, time.monotonic()
                run._changed()
            now = time.monotonic()
            if starting and self._heard:
                starting, deadline = False, now + plan.limit_s
            if self._told is not None and self._answered(self._running("paused"), self._told):
                deadline = now
            if now >= deadline:
                deadline = self._time_is_up(now)
            if self._ended_by and plan.warm and not self._heard:
                return  # the host still imports torch; it will find the link closed
            if now > ask_again and not plan.warm:
                self._send(who=True)
                ask_again = now + 0.5
            if now > self._give_up_s:
                self._end_by_force()
                raise CannotRun(
                    "the launch did not end when it was told to, and was ended by force"
                )

    def _time_is_up(self, now: float) -> float:
        """First ask every rank for its ledger, then for its stack, then stop; returns when to act.

        SIGCONT lets a paused rank answer.
        """
        if not self._ended_by:
            self._ended_by, self._run.dump_s = "time-out", self._run.elapsed_s
            self._told = ledger.written(self._run.folder)
            halted = {lane.rank for lane in self._run.lanes() if output.is_halted(lane.pid)}
            self._observed.halted = halted - self._observed.paused
            self._signal_all(signal.SIGURG, signal.SIGCONT)
            return now + _TELL_S
        if self._told is not None and self._ended_by == "time-out":
            self._told = None
            self._signal_all(signal.SIGABRT, signal.SIGCONT)
            return now + _DUMP_S
        self.stop(self._ended_by)
        return math.inf

    def _end_by_force(self) -> None:
        """Its supervisor does not act: perhaps it was stopped. End what is below it from here."""
        if self._guard is None:
            warm_start.close()
            return
        for pid in (*guard.descendants(self._guard.pid), self._guard.pid):
            guard.send_signal(pid, signal.SIGKILL)

    def _signal_all(self, *numbers: int) -> None:
        for rank in range(self._plan.ranks):
            for number in numbers:
                self._send(rank=rank, signal=int(number))

    def _send(self, **message: Any) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):  # it has just ended; _listen will hear it
                self._link.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> bool:
        assert self._link is not None
        try:
            piece = self._link.recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece and self._plan.warm and not self._heard:
            raise _NotTaken
        if not piece:
            raise CannotRun("the launch's guard was killed; its processes went with it")
        self._heard = True
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return True

    def _note(self, message: dict[str, Any]) -> None:
        run = self._run
        if "exit" in message:
            self._exit = os.waitstatus_to_exitcode(message["exit"])
        lane = run._lanes.get(message.get("rank", -1))
        if lane is None:
            return
        if "status" in message:
            lane.exit_code = os.waitstatus_to_exitcode(message["status"])
            lane.state = runs._final_state(lane.exit_code, False)
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

    def _finish(self, error: str) -> None:
        run, plan = self._run, self._plan
        lines, ok = run._record.lines, self._exit == 0 and not error
        codes = output.exit_codes(lines, self._observed, plan.ranks, ok)
        ended = "finished" if ok else self._ended_by or "failed"
        began = time.time() - run.elapsed_s
        failure: runs.Failure | None = None
        if error:
            failure = runs.Failure(None, error, kind="launcher")
        elif ended == "stopped":
            failure = runs.Failure(None, "stopped by you", kind="stopped")
        elif not ok:
            evidence = diagnosis.Evidence(
                ranks=plan.ranks,
                ended=ended,
                script=plan.script,
                limit_s=plan.limit_s,
                lines=output.Lines(lines),
                events=run._record.events,
                codes=codes,
                observed=self._observed,
                ledgers=ledger.read(run.folder),
                env=plan.visible_env,
                began=began,
            )
            try:
                failure = diagnosis.failure_of(diagnosis.explain(evidence), evidence)
            except Exception as problem:  # the run is recorded all the same
                failure = runs.Failure(None, _defect(problem), kind="launcher")
        result = {
            "ended": ended,
            "exit_code": self._exit,
            "exit_codes": codes,
            "wall_s": time.monotonic() - run._started,
            "failure": None if failure is None else vars(failure),
            "deaths": self._deaths or output.deaths_told(lines, began),
            "observed": self._observed.record(),
            "began": began,
        }
        try:
            untrusted.write(run.folder / "result.json", json.dumps(result, indent=1) + "\n")
        except OSError as problem:
            print(f"ddp_course: {runs.no_room(run.folder, problem)}", file=sys.stderr)
            if failure is not None:
                what = f"{failure.what}; the run cannot be recorded: {problem.strerror}"
                result["failure"] = {**vars(failure), "what": what}
        run._close(json.loads(json.dumps(result)))


_waiting: queue.SimpleQueue[_Launch] = queue.SimpleQueue()
_worker: threading.Thread | None = None
_live: set[Run] = set()


def live_runs() -> list[Run]:
    """The runs of this process that have not ended, the running one and those that wait."""
    return [run for run in list(_live) if not run.done]


def _submit(plan: _Plan, run: Run) -> None:
    global _worker
    _live.add(run)
    _waiting.put(_Launch(plan, run))
    if _worker is None or not _worker.is_alive():
        _worker = threading.Thread(target=_work, name="ddp-course-launcher", daemon=True)
        _worker.start()


def _work() -> None:
    while True:
        launch_ = _waiting.get()
        try:
            launch_.perform()
        finally:
            _live.discard(launch_._run)
            del launch_


def _print_while_running(run: Run) -> None:
    _say(f"$ {run.command}")
    shown = 0
    try:
        while True:
            done = run._finished.wait(_POLL_S)
            fresh = run._record.lines[shown:]  # one look: the launcher's thread goes on adding
            for line in fresh:
                if line.rank is not None and line.t_s <= run.dump_s:
                    _say(f"[rank {line.rank}] {line.words}")
            shown += len(fresh)
            if done:
                break
    except BaseException:
        run.stop()
        run._finished.wait(5)
        raise
    _say(run.summary())
    if run.failure is not None:
        _say(runs.failure_text(run.failure))


def _meeting(nodes: int, *, elastic: bool) -> list[str]:
    """The flags by which the torchruns of several nodes meet; elastic: one node is enough."""
    return [
        f"--nnodes=1:{nodes}" if elastic else f"--nnodes={nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{_free_port()}",
        f"--rdzv-id={os.urandom(4).hex()}",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(text: str) -> None:
    """Print, also where the terminal's encoding lacks a character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _check_whole(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadArgument(
            f"{name} cannot be {catalogue.shown(value)}.",
            action=f"give a whole number from {low} to {high}",
        )


def _check_switches(**switches: Any) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise BadArgument(
                f"{name} cannot be {catalogue.shown(value)}.", action="give True or False"
            )


def _check_seconds(limit_s: Any) -> None:
    number = isinstance(limit_s, int | float) and not isinstance(limit_s, bool)
    if not number or not 0 < limit_s <= 86400:
        raise BadArgument(
            f"limit_s cannot be {catalogue.shown(limit_s)}.",
            action="give seconds, above 0 and up to 86400",
        )


def _check_env(env: Any) -> None:
    if not isinstance(env, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) and _ENV_NAME.fullmatch(name)
        and catalogue.can_be_passed(f"{name}={value}")
        for name, value in env.items()
    ):  # fmt: skip
        raise BadArgument(
            f"env cannot be {catalogue.shown(env)}.",
            action="give names and values as text: env={'NAME': 'value'}",
        )


def _check_words(argv: Any) -> None:
    if not isinstance(argv, list | tuple) or not all(
        isinstance(word, str) and catalogue.can_be_passed(word) for word in argv
    ):
        raise BadArgument(
            f"argv cannot be {catalogue.shown(argv)}.",
            action="give a list of words: argv=['data/', '-n', '5']",
        )


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise BadArgument(
            "The folder that you are in has been removed.",
            action="change to another one: os.chdir(…), or restart the kernel",
        ) from error


def _check_memory(ranks: int, way: str) -> None:
    needed, free = ranks * _BYTES_PER_RANK[way], _free_bytes()
    if free is not None and needed > free:
        raise BadArgument(
            f"{ranks} ranks need about {needed / 2**30:.1f} GB of memory ({way} start), and "
            f"{free / 2**30:.1f} GB are free.",
            action=f"take at most {max(1, free // _BYTES_PER_RANK[way])} ranks, or close programs",
        )


def _free_bytes() -> int | None:
    """Memory that can be had without swapping: MemAvailable of proc(5), where there is one."""
    try:
        table = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    return int(table.split("MemAvailable:")[1].split()[0]) * 1024


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepare_data(script: Path, knobs: Mapping[str, Any]) -> None:
    """If the job has a knob `data`, bring that data set now, once, before ranks could race."""
    knob = catalogue.knobs_of(script).get("data")
    name = knobs.get("data", knob.default if knob else None)
    if knob is None or b"ddp_course" not in script.read_bytes():
        return  # what --data means in another script is its own affair
    from ddp_course.rank import data

    if name in data.NAMES:
        data.prepare(name)


def _defect(problem: Exception) -> str:
    return f"the launcher itself failed: {type(problem).__name__}: {problem}"


def _plain(value: Any) -> Any:
    """A knob's value as JSON can hold it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
