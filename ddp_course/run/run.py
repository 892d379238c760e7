"""The Run: one launch, live while it runs, and the same object when its folder is opened again."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddp_course import disk
from ddp_course.errors import BadArgument, NoEvidence, NoSuchRun
from ddp_course.run import schema
from ddp_course.run.failure import Failure, counted, failure_text, final_state
from ddp_course.run.folder import runs_folder
from ddp_course.run.reader import Line, Reader, stored_lines


@dataclass
class Lane:
    """What a rank is doing, as far as the launcher knows: one row of the live panel."""

    rank: int
    state: str = "waiting"  # running, paused, done, failed, killed, stopped
    pid: int | None = None
    attempt: int = 0
    step: int | None = None
    loss: float | None = None
    last_line: str = ""
    exit_code: int | None = None  # negative: ended by that signal; None: not known
    doing: str = ""  # now: "computes", "paused", "waits in all_reduce"; "" if it does not run
    since_s: float = 0.0  # for how long it has been waiting


class Control:
    """How a live run is controlled; the launcher fills it in."""

    def __init__(self) -> None:
        self.stop: Callable[[str], None] = lambda why: None
        self.signal: Callable[[int, int], None] = lambda rank, number: None
        self.node: Callable[[str], None] = lambda how: None
        self.ask: Callable[[float], bool] = lambda patience_s: False


class Run:
    """One launch: live while it runs, and the same object afterwards.

    Whatever needs the result waits for it: `ok`, `exit_codes`, `wall_s`, `lines`, `metrics`,
    `failure` and the rest. `state`, `lanes()`, `tail()` and `elapsed_s` answer at once.
    """

    def __init__(self, folder: Path, asked: dict[str, Any], control: Control | None = None) -> None:
        self.folder, self.asked = folder, asked
        self.job: str = asked["job"]
        self.ranks: int = asked["ranks"]
        self.nodes: int = asked.get("nodes", 1)
        self.knobs: dict[str, Any] = asked["knobs"]
        self.command: str = asked["command"]
        self.state = "queued"
        self.dump_s = math.inf  # when, at a time-out, the ranks were made to write their stacks
        self.stop_s = math.inf  # when you stopped it: torchrun then only tells how it ends
        self.shown_in: object = None  # the notebook cell that has already displayed this run
        self.unrecorded = ""  # why the folder could not be written at the end
        self.control = control
        self.reader = Reader(folder, self.ranks // self.nodes)
        self._result: dict[str, Any] = {}
        self._failure: Failure | None = None
        self._asking = threading.Lock()
        self._lanes = {rank: Lane(rank) for rank in range(self.ranks)}
        self._finished = threading.Event()
        self._started = time.monotonic()
        self._follows = False  # another process launched it, and it has not ended yet
        self._callbacks: list[Callable[[Run], None]] = []
        self._lock = disk.Lock(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Reopen a run: one that has ended, or one that another process has launched and that runs.

        Raises NoSuchRun if the folder is neither.
        """
        folder = Path(folder)
        try:
            asked = disk.read_json(folder / "run.json")
            schema.check_asked(asked)
            live = _is_live(folder)
            run = cls(folder, asked)
            if live:
                run._follow()
                return run
            run._read_end()
        except (
            OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError
        ) as error:  # fmt: skip
            raise NoSuchRun(
                f"{folder} is not a run ({type(error).__name__}: {error}).",
                cause="a different folder, a run that was killed, or a damaged file",
                action=f"choose a folder in {runs_folder()}",
            ) from error
        return run

    def _read_end(self) -> None:
        result = disk.read_json(self.folder / "result.json")
        disk.check(schema.Result, result)
        self.reader.poll(0.0, last=True)
        with contextlib.suppress(OSError, ValueError):  # the logs hold them as well
            self.reader.lines = stored_lines(self.folder)
        self.close(result)

    def _follow(self) -> None:
        """Look at a run that another process has launched: its ranks can be asked, not moved."""
        self.state, self._follows = "running", True
        self._started = time.monotonic() - (time.time() - self.asked.get("created", time.time()))
        self.control = Control()
        self.control.ask = self._ask_from_outside
        live = disk.read_json(self.folder / "live.json")
        for rank, pid in live["pids"].items():
            self._lanes[int(rank)].pid, self._lanes[int(rank)].state = int(pid), "running"
        self.poll()

    def _ask_from_outside(self, patience_s: float) -> bool:
        before = self._ledgers_written()
        asked = [lane.pid for lane in self.lanes() if lane.pid]
        for pid in asked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGURG)  # whoever does not expect it does not notice it
        deadline = time.monotonic() + patience_s
        while len(self._ledgers_written() - before) < len(asked):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _ledgers_written(self) -> set[tuple[str, int]]:
        found = set()
        for path in self.folder.glob("ledger-*.json"):
            with contextlib.suppress(OSError):
                found.add((path.name, path.stat().st_mtime_ns))
        return found

    # What answers at once

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        if self._follows and not self._finished.is_set() and not _is_live(self.folder):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                self._read_end()
        return self._finished.is_set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the job was started; the wall time once it is done."""
        if self.done:
            return float(self._result.get("wall_s", 0.0))
        return 0.0 if self.state == "queued" else time.monotonic() - self._started

    def lanes(self) -> list[Lane]:
        """One row for each rank, with what it does now."""
        lanes = [self._lanes[rank] for rank in sorted(self._lanes)]
        for lane in lanes:
            lane.doing, lane.since_s = self._doing(lane)
        return lanes

    def _doing(self, lane: Lane) -> tuple[str, float]:
        """What the rank last told of itself (observe/recorder/doing.py), and for how many s."""
        if lane.state != "running" or self.done:
            return ("paused" if lane.state == "paused" else ""), 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = disk.read_json(self.folder / f"doing-{lane.rank}.json", 10_000)
            if told["waits"] and told["attempt"] == lane.attempt:
                call, line = str(told["call"])[:60], told["line"]
                where = f"in {call}" if call else "somewhere"
                if line is not None and not call:
                    where = f"at {Path(str(line['file'])).name[:60]}, line {int(line['line'])}"
                return f"waits {where}", max(0.0, time.time() - float(told["t"]))
        return "computes", 0.0

    def tail(self, count: int = 20) -> list[Line]:
        """The last lines so far, without what a time-out or a stop made them write.

        Those are the ranks' stacks, and the traceback by which torchrun ends.
        """
        ends_s = min(self.dump_s, self.stop_s)
        lines = [
            line
            for line in self.reader.lines
            if line.t_s <= (ends_s if line.rank is None else self.dump_s)
        ]
        return lines[max(0, len(lines) - count) :]

    def subscribe(self, callback: Callable[[Run], None]) -> None:
        """Call back, from the launcher's thread, whenever something changed and once at the end."""
        self._callbacks.append(callback)
        if self.done:
            callback(self)

    # Control

    def stop(self) -> None:
        """End the run now, with everything that it started."""
        if self.control is not None and not self.done:
            self.control.stop("stopped")

    def pause(self, rank: int) -> None:
        """SIGSTOP: the rank stands still, and the others will wait for it."""
        self._signal(rank, signal.SIGSTOP)

    def resume(self, rank: int) -> None:
        """SIGCONT: the rank goes on."""
        self._signal(rank, signal.SIGCONT)

    def kill(self, rank: int) -> None:
        """SIGKILL: the rank is gone without a word, as if it had run out of memory."""
        self._signal(rank, signal.SIGKILL)

    def ask(self, *, patience_s: float = 2.0) -> bool:
        """Make every rank that runs write its ledger now (ddp_course.observe.ledger); nothing ends.

        Returns whether all have, within `patience_s` seconds. A paused rank cannot answer.
        """
        return self.control is not None and not self.done and self.control.ask(patience_s)

    def lose_node(self) -> None:
        """The last node is gone, torchrun and ranks, as if its machine had lost power."""
        self._move_node("lose")

    def return_node(self) -> None:
        """A torchrun is started in the place of the node that was lost."""
        self._move_node("return")

    def _move_node(self, how: str) -> None:
        if self.nodes == 1:
            raise ValueError(
                "This run has one node; launch(…, nodes=2) makes one that can be lost."
            )
        if self.control is not None and not self.done:
            self.control.node(how)

    def _signal(self, rank: int, number: int) -> None:
        if rank not in self._lanes:
            raise ValueError(
                f"There is no rank {rank!r}; this run has ranks 0 to {self.ranks - 1}."
            )
        if self.control is not None and not self.done:
            self.control.signal(rank, number)

    # What waits for the result

    def wait(self) -> Run:
        """Wait for the end. Interrupting it stops the run."""
        try:
            while not self.ends_within(0.1):
                pass
        except BaseException:
            self.stop()
            self.ends_within(5)
            raise
        return self

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end, but no longer than this; return whether it has come."""
        return self.done or self._finished.wait(seconds)

    def wait_for_step(self, step: int) -> Run:
        """Wait until every rank that lives has logged this step, or the run has ended."""
        try:
            while not self.done and not self._all_reached(step):
                self.ends_within(0.02)
        except BaseException:
            self.stop()
            raise
        return self

    def _all_reached(self, step: int) -> bool:
        living = [lane for lane in self.lanes() if lane.state in ("waiting", "running", "paused")]
        reached = [lane.step is not None and lane.step >= step for lane in living]
        return bool(reached) and all(reached)

    @property
    def result(self) -> dict[str, Any]:
        """All that is known of how it ended (result.json)."""
        return self.wait()._result

    @property
    def ok(self) -> bool:
        """Whether torchrun ended with exit code 0."""
        return self.ended == "finished"

    @property
    def ended(self) -> str:
        """How it ended: "finished", "failed", "time-out" or "stopped"."""
        return str(self.result.get("ended", "failed"))

    @property
    def exit_codes(self) -> dict[int, int]:
        """{rank: exit code}, negative for a signal; a rank whose end nobody saw is left out."""
        return {int(rank): code for rank, code in self.result.get("exit_codes", {}).items()}

    @property
    def wall_s(self) -> float:
        """Seconds from the launch to its end."""
        return float(self.result["wall_s"])

    @property
    def failure(self) -> Failure | None:
        """What went wrong first; None if nothing did. Found out when it is first asked for."""
        if self.ok:
            return None
        with self._asking:
            if self._failure is None:
                self._failure = self._failure_told() or self._find_failure()
        return self._failure

    def _failure_told(self) -> Failure | None:
        """What the launcher itself said, or what was found when somebody asked before."""
        said = self._result.get("failure")
        if said is None and self.control is None:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                said = disk.read_json(self.folder / "failure.json")
                disk.check(schema.Failed, said)
        if said is None:
            return None
        by_rank = {
            name: {int(rank): text for rank, text in said.get(name, {}).items()}
            for name in ("where", "consequences")
        }
        known = {name: said[name] for name in schema.Failed.__annotations__ if name in said}
        return Failure(**{**known, **by_rank})

    def _find_failure(self) -> Failure:
        try:
            found: Failure = _above("first_failure")(self)
        except Exception as problem:  # a defect of ours must not hide the run
            what = f"the diagnosis itself failed: {type(problem).__name__}: {problem}"
            found = Failure(None, what, kind="launcher")
        if self.unrecorded:
            return replace(found, what=f"{found.what}; {self.unrecorded}")
        with contextlib.suppress(OSError):
            disk.write(self.folder / "failure.json", json.dumps(vars(found)))
        return found

    @property
    def diagnosis(self) -> Any:
        """What happened in this run, or is happening now: the answer of ddp_course.diagnose."""
        return _above("diagnose")(self)

    @property
    def lines(self) -> list[Line]:
        """Every line of output, in order of arrival."""
        self.wait()
        return list(self.reader.lines)

    def lines_of(self, rank: int | None, stream: str | None = None) -> list[str]:
        """The lines of one rank (None: torchrun's own)."""
        return [
            line.text for line in self.lines if line.rank == rank and stream in (None, line.stream)
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the ranks reported, rank after rank, each in its order."""
        self.wait()
        return sorted(self.reader.events, key=lambda event: int(event["rank"]))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What the ranks logged: the events of report.log()."""
        return [event for event in self.events if event["event"] == "log"]

    def values(self, name: str, rank: int = 0) -> list[Any]:
        """All values that a rank logged under this name, in order."""
        return [m[name] for m in self.metrics if m["rank"] == rank and name in m]

    def value(self, name: str, rank: int = 0) -> Any:
        """The last value that a rank logged under this name. Raises NoEvidence if there is none."""
        values = self.values(name, rank)
        if not values:
            logged = sorted({key for m in self.metrics for key in m} - {"t", "rank", "event"})
            cause = "the run ended before it" if not self.ok else "another name"
            there = rank in self._lanes
            raise NoEvidence(
                f"Rank {rank} of {self.job} logged no {name!r}.",
                cause=cause if there else f"it has {counted(self.ranks)}, from 0 on",
                action=f"it has: {', '.join(logged) or 'nothing'}; see run.failure and run.lines",
            )
        return values[-1]

    def by_rank(self, name: str) -> dict[int, Any]:
        """{rank: the last value that it logged under this name}, in the order of ranks."""
        last = {m["rank"]: m[name] for m in self.metrics if name in m}
        return {rank: last[rank] for rank in sorted(last)}

    @property
    def traces(self) -> dict[int, Path]:
        """{rank: its profile}, for a run that was traced."""
        self.wait()
        found = {rank: self.folder / f"trace-{rank}.json" for rank in range(self.ranks)}
        return {rank: path for rank, path in found.items() if path.is_file()}

    # How it shows itself

    def summary(self) -> str:
        """One line: how it ended."""
        ended = {"finished": "ok", "failed": "FAILED", "time-out": "TIME-OUT", "stopped": "stopped"}
        how = ended[self.ended] if self.done else self.state
        return f"{self.job}: {how}, {counted(self.ranks)}, {self.elapsed_s:.2f} s"

    def __repr__(self) -> str:
        return f"<Run {self.summary()}>"

    def __str__(self) -> str:
        self.wait()
        place = [str(e.get("why", "")) for e in self.events if e["event"] == "place"]
        parts = [f"$ {self.command}", self.summary(), *place[:1]]
        if self.failure is not None:
            parts += ["", failure_text(self.failure)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        html: str = _above("run_html")(self.wait())
        return html

    # The launcher's side

    def begin(self) -> None:
        """It is about to start."""
        self.state, self._started = "starting", time.monotonic()

    def poll(self, *, last: bool = False) -> bool:
        """Take in what the ranks wrote since; return whether anything was."""
        lines, events = len(self.reader.lines), len(self.reader.events)
        changed = self.reader.poll(self.elapsed_s, last=last)
        for event in self.reader.events[events:]:
            lane = self._lanes.get(event["rank"])
            if lane is not None and event["event"] == "log":
                lane.step = event["step"] if isinstance(event.get("step"), int) else lane.step
                loss = event.get("loss")
                with contextlib.suppress(OverflowError):  # an integer beyond any float
                    lane.loss = float(loss) if isinstance(loss, int | float) else lane.loss
        fresh = self.reader.lines[lines:]
        for line in fresh:
            if line.rank in self._lanes and line.text.strip() and line.t_s <= self.dump_s:
                self._lanes[line.rank].last_line = line.words
        if fresh and not self._follows:
            text = "".join(json.dumps(vars(line)) + "\n" for line in fresh)
            with contextlib.suppress(OSError):
                disk.append(self.folder / "lines.jsonl", text)
        return changed

    def changed(self) -> None:
        """Tell those who subscribed."""
        for callback in list(self._callbacks):
            with contextlib.suppress(Exception):
                callback(self)

    def close(self, result: dict[str, Any]) -> None:
        """It has ended so."""
        self._result = result
        codes = {int(rank): code for rank, code in result.get("exit_codes", {}).items()}
        for lane in self._lanes.values():
            lane.exit_code = codes.get(lane.rank)
            lane.state = final_state(lane.exit_code, finished=result.get("ended") == "finished")
        self.state = "done"
        self._finished.set()
        self.changed()


def _above(name: str) -> Any:
    """A function of a room above this one, which the package names (ddp_course.HOOKS)."""
    package: Any = importlib.import_module("ddp_course")
    return package.hook(name)


def _is_live(folder: Path) -> bool:
    """Whether it has no end yet, and somebody holds it."""
    if (folder / "result.json").exists():
        return False
    with disk.Lock(folder, exclusive=True) as lock:
        return not lock.held


def check_run(value: object) -> None:
    """Raise BadArgument unless this is a run."""
    if not hasattr(value, "wait"):
        raise BadArgument(
            f"A run is what launch returns, not {str(value)[:100]!r}.",
            action="run = launch(…), or Run.open(folder) for one that is over",
        )
