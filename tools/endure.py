"""make endure: many launches with every kind of failure mixed in, then a count of what is left.

    python tools/endure.py [--launches 1000] [--seed 0] [--plain 0.03]

Each launch fails in its own way at a random moment: from within a rank, by a signal to a rank, to
torchrun, to the launch's supervisor or to the warm host, by a stop, an interrupt or the limit. At
the end, and a moment after each launch, nothing of it may be left: no process, port, descriptor,
thread, temporary file or shared memory, and this process may not have grown. Exit code 0 if so.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

JOB = Path(__file__).with_name("endure_job.py")
PATIENCE_S = 120.0  # for what must happen, however busy the machine

# What a rank does by itself: its exit code, None where the end of the run decides.
OF_A_RANK = {
    "end": 0, "leave early": None, "raise": 1, "exit 3": 3, "segfault": -11, "abort": -6,
    "kill -9": -9,
}  # fmt: skip
# What is done to a run of ranks that wait for each other, and how often it is drawn.
FROM_OUTSIDE = {
    "kill rank": 4, "pause rank": 2, "stop": 4, "interrupt": 2, "time-out": 2, "restart": 2,
    "SIGKILL torchrun": 3, "SIGTERM torchrun": 2, "SIGKILL supervisor": 2, "SIGKILL host": 1,
    "SIGKILL guard": 1,
}  # fmt: skip


END_BY_LIMIT = "time-out", "pause rank", "leave early"
ENDED_AS = {
    "stop": "stopped", "interrupt": "stopped", "time-out": "time-out", "pause rank": "time-out"
}  # fmt: skip


@dataclass
class State:
    """What this process and its descendants hold."""

    processes: int
    ports: int
    descriptors: int
    threads: int
    temporary: list[str]
    shared_memory: int
    live_runs: int
    objects: int = field(compare=False)
    memory_mb: float = field(compare=False)

    def exceeds(self, before: State, launches: int = 10**6) -> bool:
        """Whether more is held than so many launches before. One temporary folder is allowed: that
        of a host which was killed together with its guard may stay until a later start."""
        counts = ("processes", "ports", "descriptors", "threads", "shared_memory", "live_runs")
        return (
            any(getattr(self, name) > getattr(before, name) for name in counts)
            or len(self.temporary) > len(before.temporary) + 1
            or self.objects > before.objects + 2000
            or self.memory_mb > before.memory_mb + 8 + 0.02 * launches
        )

    def __str__(self) -> str:
        return (
            f"{self.processes} processes, {self.ports} ports, {self.descriptors} descriptors, "
            f"{self.threads} threads, {len(self.temporary)} temporary files, "
            f"{self.shared_memory} shared memory, {self.objects} objects, {self.memory_mb:.1f} MB"
        )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", type=float, default=0.03, help="share of plain torchruns")
    given = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="e-"))
    os.environ["DDP_COURSE_RUNS"] = str(folder / "runs")
    os.environ["TMPDIR"] = str(folder / "t")
    (folder / "t").mkdir()
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    try:
        return endure(given.launches, random.Random(given.seed), given.plain)
    finally:
        from ddp_course.process import warm

        warm.close()
        shutil.rmtree(folder, ignore_errors=True)


def endure(launches: int, chance: random.Random, plain: float) -> int:
    warm_up = launches // 10
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []

    def complain(text: str) -> None:
        wrong.append(text)
        print(text, flush=True)

    for kind in ("end", "raise", "stop"):  # what is made once and kept is there now
        one_launch(kind, chance, warm=True)
    for number in range(launches):
        if number == warm_up:
            one_launch("end", chance, warm=True)  # so that a host is there
            before = settled(None)
        kind = draw(chance)
        warm = chance.random() >= plain or kind in ("SIGKILL host", "SIGKILL guard")
        what = f"launch {number}, {kind} ({'warm' if warm else 'plain'})"
        try:
            end, complaint = one_launch(kind, chance, warm=warm)
        except Exception as error:
            end, complaint = "exception", f"{type(error).__name__}: {error}"
        ends[kind][end] += 1
        if complaint:
            complain(f"{what}: {complaint}")
        if left := strays():
            complain(f"{what}: left behind: {'; '.join(left)}")
        if (number + 1) % max(1, launches // 20) == 0:
            print(f"{number + 1} of {launches}  {state()}", flush=True)
    one_launch("end", chance, warm=True)
    after = settled(before)
    for kind, counts in sorted(ends.items()):
        how = ", ".join(f"{end} {count}" for end, count in sorted(counts.items()))
        print(f"{kind:20} {counts.total():5}   {how}")
    print(f"after {warm_up:5} launches: {before}")
    print(f"after {launches:5} launches: {after}")
    if after.exceeds(before, launches - warm_up):
        complain("more is held than before")
    if not wrong:
        print(f"{launches} launches left nothing.")
    return 1 if wrong else 0


def draw(chance: random.Random) -> str:
    weights = {**dict.fromkeys(OF_A_RANK, 3), **FROM_OUTSIDE}
    return chance.choices(list(weights), list(weights.values()))[0]


def one_launch(kind: str, chance: random.Random, *, warm: bool) -> tuple[str, str]:
    """Launch and fail in this way: how the run ended, and what is wrong about that, if anything."""
    from ddp_course import launch

    ranks = chance.choice([2, 2, 2, 3, 4])
    own = kind in OF_A_RANK or kind == "restart"
    moment_s = chance.choice([0.0, chance.uniform(0, 0.1), chance.uniform(0, 0.6)])
    guard_struck = kind == "SIGKILL guard" or (kind == "SIGKILL supervisor" and not warm)
    run = launch(
        JOB, ranks=ranks, warm=warm, wait=False,
        restarts=int(kind == "restart"),
        limit_s=chance.uniform(0.3, 3) if kind in END_BY_LIMIT else 600,
        do=kind if own else "hang",
        after=moment_s if own else 0.0,
        gloo=chance.random() < 0.4,
        # The guard, which catches what has left its session, is not there to do so.
        daemon=chance.random() < 0.2 and not guard_struck,
    )  # fmt: skip
    ready = chance.random() < 0.7  # else in the middle of the start
    if not own:
        if ready:
            until(lambda: run.done or _alive_lines(run) == ranks)
        time.sleep(moment_s)
        disturb(kind, run, chance)
    if not run.ends_within(PATIENCE_S):
        run.stop()
        return "never", f"did not end within {PATIENCE_S:g} s"
    return run.ended, complaint(kind, run)


def _alive_lines(run: Any) -> int:
    return sum("alive" in line.text for line in run.tail(1000))


def complaint(kind: str, run: Any) -> str:
    """What is wrong about the end of a run of this kind."""
    run.wait()
    text = f"{run.ended}, {run.exit_codes}, {run.failure and run.failure.what!r}"
    if kind in ("end", "restart") and not run.ok:
        return text
    code = OF_A_RANK.get(kind)
    if code and (run.failure is None or (run.failure.rank, run.failure.exit_code) != (1, code)):
        return text
    if run.ended != ENDED_AS.get(kind, run.ended):
        return text
    if not run.ok and run.failure is None:
        return f"failed without a failure: {text}"
    if not str(run) or not run._repr_html_():
        return "it does not show itself"
    return ""


def disturb(kind: str, run: Any, chance: random.Random) -> None:
    if kind in STRIKES:
        strike(run, *STRIKES[kind])
    elif kind == "kill rank":
        rank = chance.randrange(run.ranks)
        until(lambda: run.done or run.lanes()[rank].pid)
        run.kill(rank)
    elif kind == "pause rank":
        until(lambda: run.done or run.lanes()[0].pid)
        run.pause(0)
    elif kind == "stop":
        run.stop()
    elif kind == "interrupt":  # as Ctrl-C does it to a waiting cell
        timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with contextlib.suppress(KeyboardInterrupt):
            run.wait()
        timer.join()


def strike(run: Any, whom: Callable[[], list[psutil.Process]], number: int) -> None:
    """Signal one kind of process below us until the run ends.

    Once may not do: a launch that loses its host before it was taken is begun again.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not run.done and time.monotonic() < deadline:
        for process in (found := whom()):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        run.ends_within(10 if found else 0.005)


def until(condition: Callable[[], Any], limit_s: float = PATIENCE_S) -> bool:
    """Wait until the condition holds; whether it came to hold in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def below(*words: str) -> list[psutil.Process]:
    """Our living descendants with all these words in their command lines."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if alive(process) and all(word in command(process) for word in words)
    ]


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def children(of: list[psutil.Process]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in of:
        with contextlib.suppress(psutil.Error):
            found += process.children()
    return found


def host_guards() -> list[psutil.Process]:
    """The guard of the warm host: it and the host stay between launches."""
    return below("guard.py", " host ")[:1]


def hosts() -> list[psutil.Process]:
    return children(host_guards())[:1]


def supervisors() -> list[psutil.Process]:
    """Of a warm launch the host's child, of a plain one the guard itself."""
    return below("guard.py", " launch ") or children(hosts())


def agents() -> list[psutil.Process]:
    """torchrun: the plain launch's own child, or the parent of the ranks' shims."""
    plain = [p for p in below("torch.distributed.run") if "guard.py" not in command(p)]
    shims = below("shim.py")
    found = [p for p in below("host.py") if any(shim in shims for shim in children([p]))]
    return plain or found


STRIKES = {
    "SIGKILL torchrun": (agents, signal.SIGKILL),
    "SIGTERM torchrun": (agents, signal.SIGTERM),
    "SIGKILL supervisor": (supervisors, signal.SIGKILL),
    "SIGKILL host": (hosts, signal.SIGKILL),
    "SIGKILL guard": (host_guards, signal.SIGKILL),
}


def marked() -> list[psutil.Process]:
    """Processes that were given a temporary folder below ours, wherever they hang."""
    temp, me, found = os.environ["TMPDIR"], os.getpid(), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != me and process.environ().get("TMPDIR", "").startswith(temp):
                found.append(process)
    return [process for process in found if alive(process)]


def strays() -> list[str]:
    """What lives although no launch runs, given a moment to end."""
    left: set[psutil.Process] = set()

    def none_left() -> bool:
        left.clear()
        left.update({*below(), *marked()} - {*host_guards(), *hosts()})
        return not left

    until(none_left, 60)
    return [f"{process.pid} {command(process)[:120]}" for process in left]


def state() -> State:
    from ddp_course.launcher import launch as launcher

    gc.collect()
    me, everyone = psutil.Process(), [psutil.Process(), *marked()]
    ports, pids = 0, {process.pid for process in everyone}
    for process in everyone:
        with contextlib.suppress(psutil.Error):
            ports += sum(c.status == "LISTEN" for c in process.net_connections("tcp"))
    names = [path.name for path in Path(os.environ["TMPDIR"]).iterdir()]
    return State(
        processes=len(everyone),
        ports=ports,
        descriptors=me.num_fds(),
        threads=me.num_threads(),
        temporary=sorted(name.rpartition("-")[0] or name for name in names),
        shared_memory=sum(_ours(path, pids) for path in Path("/dev/shm").glob("*")),
        live_runs=len(launcher.live_runs()),
        objects=len(gc.get_objects()),
        memory_mb=me.memory_info().rss / 1e6,
    )


def _ours(path: Path, pids: set[int]) -> bool:
    """Shared memory that ours has made, or one that is gone: torch names it after the process."""
    maker = path.name.split("_")[1:2] if path.name.startswith("torch_") else []
    started = psutil.Process().create_time()
    with contextlib.suppress(OSError, ValueError):
        pid = int(maker[0]) if maker else os.getppid()
        return (pid in pids or not psutil.pid_exists(pid)) and path.stat().st_mtime > started
    return False


def settled(wanted: State | None) -> State:
    """The state when nothing changes any more, or no more is held than wanted; within 30 s."""
    deadline = time.monotonic() + 30
    last = state()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = state()
        if now == last if wanted is None else not now.exceeds(wanted):
            return now
        last = now
    return last


if __name__ == "__main__":
    sys.exit(main())
