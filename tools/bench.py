"""make bench: what the launcher costs, measured side by side in one run.

Machines are noisy, so every figure is a median and stands beside a peer that was measured in turn
with it; quote the ratios. Nothing here is a test: no number passes or fails.

    python tools/bench.py [--rounds 5] [--only launch] [--students 20]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOB = Path(__file__).with_name("bench_job.py")
RANKS = 4

# Imported torch, forks four ranks, nothing else: the floor that a warm launch is measured against.
BARE_FORK = """
import os, runpy, socket, sys, time
import torch, torch._dynamo, torch.distributed, torch.nn.parallel
job, ranks, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(rounds):
    sys.stdin.readline()
    began = time.perf_counter()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            torch.set_num_threads(1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.argv = [job]
            runpy.run_path(job, run_name="__main__")
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    print(time.perf_counter() - began, flush=True)
"""

SPAWN = """
import os, runpy, socket, sys
import torch.multiprocessing as mp

def rank_main(rank, ranks, port, job):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = [job]
    runpy.run_path(job, run_name="__main__")

if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(rank_main, args=(int(sys.argv[2]), port, sys.argv[1]), nprocs=int(sys.argv[2]))
"""

FIRST = """
import time
began = time.perf_counter()
from ddp_course import launch
run = launch({job!r}, ranks={ranks}, wait=False).wait()
assert run.ok, run
print(time.perf_counter() - began)
"""

WAITING = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
DDP(torch.nn.Linear(10, 10))(torch.ones(1, 10)).sum().backward()
dist.barrier()
print("ready", flush=True)
time.sleep(60)
"""


def main() -> None:
    parts = {
        "launch": bench_launch,
        "line": bench_first_line,
        "step": bench_step,
        "memory": bench_memory,
        "slider": bench_slider,
        "check": bench_check,
        "grading": bench_grading,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[*parts])
    parser.add_argument("--students", type=int, default=0, help="grade a class of so many, too")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DDP_COURSE_RUNS"] = folder
        print(f"{os.cpu_count()} cores, {RANKS} ranks, medians of {args.rounds} rounds")
        for name, part in parts.items():
            if args.only in (None, name):
                print(f"\n{name}")
                part(args.rounds)
        if args.students:
            bench_class(args.students)


def bench_launch(rounds: int) -> None:
    """Wall time of the same 4-rank, 3-step job, launched in five ways, in turn."""
    bare = subprocess.Popen(
        [sys.executable, "-c", BARE_FORK, str(JOB), str(RANKS), str(rounds + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bare.stdin is not None and bare.stdout is not None
    ask, answers = bare.stdin, bare.stdout

    def bare_fork() -> float:
        ask.write("\n")
        ask.flush()
        return float(answers.readline())

    def first_launch() -> float:
        text = FIRST.format(job=str(JOB), ranks=RANKS)
        done = subprocess.run([sys.executable, "-c", text], check=True, stdout=subprocess.PIPE)
        return float(done.stdout.split()[-1])

    spawn = Path(os.environ["DDP_COURSE_RUNS"], "bench_spawn.py")
    spawn.write_text(SPAWN)
    warm_launch()
    bare_fork()
    taken = in_turn(rounds, "s", {
        "plain torchrun": lambda: timed([*torchrun(), str(JOB)]),
        "warm launch": warm_launch,
        "bare fork of the ranks": bare_fork,
        "mp.spawn": lambda: timed([sys.executable, str(spawn), str(JOB), str(RANKS)]),
        "first launch of a process": first_launch,
    })  # fmt: skip
    bare.wait()
    pairs = zip(taken["warm launch"], taken["bare fork of the ranks"], strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"warm launch / bare fork, pair by pair: median {ratio:.2f}")


def bench_first_line(rounds: int) -> None:
    """From launch() to the moment when a listener sees the job's first line."""
    from ddp_course import launch
    from ddp_course.run.run import Run

    seen: list[float] = []
    written: list[float] = []
    warm_launch()
    for _ in range(rounds):
        first: list[float] = []

        def listener(run: Run, first: list[float] = first) -> None:
            if not first and any(line.rank == 0 for line in run.tail(50)):
                first.append(time.time())

        began = time.time()
        run = launch(str(JOB), ranks=RANKS, wait=False)
        run.subscribe(listener)
        run.wait()
        log = next(run.folder.glob("logs/*/attempt_0/0/stdout.log"))
        seen.append(first[0] - began)
        written.append(1e3 * max(0.0, first[0] - log.stat().st_mtime))
    show("launch to first line shown", seen, "s")
    show("line written to line shown", written, "ms")


def bench_step(rounds: int) -> None:
    """Median step of a 2-rank job: under plain torchrun, launched warm, and launched traced."""
    from ddp_course import launch

    def plain() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [*torchrun(2), str(JOB), "--steps", "200", "--width", "512"]
            timed(command, DDP_COURSE_RUN=folder)
            events = Path(folder, "events-0.jsonl").read_text()
        return float(json.loads(events.splitlines()[-1])["step_ms"])

    def launched(trace: bool) -> float:
        run = launch(str(JOB), ranks=2, trace=trace, wait=False, steps=200, width=512).wait()
        return float(run.value("step_ms"))

    in_turn(rounds, "ms", {
        "step, plain torchrun": plain,
        "step, launched": lambda: launched(False),
        "step, traced": lambda: launched(True),
    })  # fmt: skip


def bench_memory(rounds: int) -> None:
    """Proportional memory (PSS, proc(5)) of four ranks that wait, warm and plain."""
    from ddp_course import launch

    job = Path(os.environ["DDP_COURSE_RUNS"], "bench_memory.py")
    job.write_text(WAITING)
    for warm in (True, False):
        run = launch(str(job), ranks=RANKS, warm=warm, wait=False)
        while len({line.rank for line in run.tail(50) if line.text == "ready"}) < RANKS:
            time.sleep(0.05)
        while any(lane.pid is None for lane in run.lanes()):  # looked up every half second
            time.sleep(0.05)
        total = sum(pss_bytes(lane.pid) for lane in run.lanes() if lane.pid)
        run.stop()
        run.wait()
        print(f"{'warm' if warm else 'plain':28}{total / 2**20 / RANKS:8.0f} MB a rank")


def bench_slider(rounds: int) -> None:
    """From a slider's move to the new figure: a traced 4-rank job, its timeline drawn."""
    from ddp_course import launch, timeline

    def moved() -> float:
        began = time.perf_counter()
        timeline(launch("overlap_buckets", ranks=RANKS, trace=True, wait=False))._repr_html_()
        return time.perf_counter() - began

    moved()
    in_turn(rounds, "s", {"slider to figure": moved})


def bench_check(rounds: int) -> None:
    """A check of every exercise's solution, beside one plain 2-rank torchrun of ex05's file."""
    from ddp_course.checks import judge

    os.environ["DDP_COURSE_EXERCISES"] = "solutions"

    def checked(name: str) -> float:
        began = time.perf_counter()
        assert judge.judge(name).passed
        return time.perf_counter() - began

    checked("ex00")
    plain = [*torchrun(2), str(judge.exercise_file(judge.EXERCISES["ex05"]))]
    in_turn(rounds, "s", {
        "plain torchrun": lambda: timed(plain),
        **{name: partial(checked, name) for name in judge.EXERCISES},
    })  # fmt: skip


def bench_grading(rounds: int) -> None:
    """One student's solutions, graded by the command, beside plain torchrun of ex05's file."""
    if not shutil.which("bwrap"):
        print("left out: there is no bubblewrap here (sudo apt-get install bubblewrap)")
        return
    from ddp_course.checks.exercises import EXERCISES

    plain = [*torchrun(2), str(ROOT / "solutions" / f"{EXERCISES['ex05'].stem}.py")]
    in_turn(rounds, "s", {
        "plain torchrun": lambda: timed(plain),
        "graded, ex05 only": lambda: graded(1, "--exercise", "ex05"),
        f"graded, all {len(EXERCISES)}": lambda: graded(1),
        "graded, all, no sandbox": lambda: graded(1, "--unsafe-no-sandbox"),
    })  # fmt: skip


def bench_class(students: int) -> None:
    """A class in which everybody has handed in every solution, two at a time."""
    took = graded(students, "--jobs", "2")
    print(f"{students} students, all exercises, two at a time: {took:.1f} s")


def graded(students: int, *options: str) -> float:
    """Seconds of the command that grades so many copies of the solutions."""
    with tempfile.TemporaryDirectory() as folder:
        ids = [f"s{number:03}" for number in range(students)]
        for one in ids:
            shutil.copytree(ROOT / "solutions", Path(folder, "in", one))
        roster = Path(folder, "roster.csv")
        roster.write_text("\n".join(["id", *ids]) + "\n")
        command = [sys.executable, "-m", "ddp_grading", "grade", f"{folder}/in"]
        return timed([*command, "--roster", str(roster), "--out", f"{folder}/out", *options])


def in_turn(rounds: int, unit: str, ways: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure each way in each round; the first one is what the others are compared with."""
    from ddp_course.process import warm

    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(way())
    warm.close()
    base, *others = taken
    for name, times in taken.items():
        show(name, times, unit)
        if name in others:
            ratios = [a / b for a, b in zip(times, taken[base], strict=True)]
            print(f"{'':28}{statistics.median(ratios):8.3f} of {base}")
    return taken


def warm_launch() -> float:
    from ddp_course import launch

    began = time.perf_counter()
    run = launch(str(JOB), ranks=RANKS, wait=False).wait()
    assert run.ok, run
    return time.perf_counter() - began


def torchrun(ranks: int = RANKS) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}",
    ]  # fmt: skip


def timed(command: list[str], **variables: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return time.perf_counter() - began


def pss_bytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.split("\nPss:")[1].split()[0]) * 1024


def show(name: str, times: list[float], unit: str) -> None:
    low, high = min(times), max(times)
    print(f"{name:28}{statistics.median(times):8.3f} {unit}   ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
