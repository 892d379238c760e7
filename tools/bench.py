"""make bench: what the launcher costs, measured side by side in one run.

Machines are noisy, so every figure is a median and stands beside a peer that was measured in turn
with it; quote the ratios. Nothing here is a test: no number passes or fails.

    python tools/bench.py [--rounds 5] [--only launch|step|line|memory|slider|check]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", choices=["launch", "line", "step", "memory", "slider", "check", "grading"]
    )
    parser.add_argument("--nbgrader", action="store_true", help="install it apart, and time it")
    parser.add_argument("--students", type=int, default=0, help="grade a class of so many")
    args = parser.parse_args()
    parts: dict[str, Callable[[int], None]] = {
        "launch": bench_launch,
        "line": bench_first_line,
        "step": bench_step,
        "memory": bench_memory,
        "slider": bench_slider,
        "check": bench_check,
        "grading": lambda rounds: bench_grading(rounds, args.nbgrader, args.students),
    }
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DDP_COURSE_RUNS"] = folder
        print(f"{os.cpu_count()} cores, {RANKS} ranks, medians of {args.rounds} rounds")
        for name, part in parts.items():
            if args.only in (None, name):
                print(f"\n{name}")
                part(args.rounds)


def bench_launch(rounds: int) -> None:
    """Wall time of the same 4-rank, 3-step job, launched in five ways, in turn."""
    from ddp_course.process import warm

    bare = subprocess.Popen(
        [sys.executable, "-c", BARE_FORK, str(JOB), str(RANKS), str(rounds + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def bare_fork() -> float:
        assert bare.stdin is not None and bare.stdout is not None
        bare.stdin.write("\n")
        bare.stdin.flush()
        return float(bare.stdout.readline())

    ways: dict[str, Callable[[], float]] = {
        "warm launch": warm_launch,
        "bare fork of the ranks": bare_fork,
        "plain torchrun": lambda: timed([*torchrun(), str(JOB)]),
        "mp.spawn": lambda: timed([sys.executable, spawn_file(), str(JOB), str(RANKS)]),
        "first launch of a process": first_launch,
    }
    warm_launch()
    bare_fork()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(way())
    bare.wait()
    warm.close()
    base = statistics.median(taken["plain torchrun"])
    for name, times in taken.items():
        show(name, times, "s")
        print(f"{'':28}{statistics.median(times) / base:8.3f} of plain torchrun")
    ratios = [
        a / b for a, b in zip(taken["warm launch"], taken["bare fork of the ranks"], strict=True)
    ]
    print(f"warm launch / bare fork, pair by pair: median {statistics.median(ratios):.2f}")


def bench_first_line(rounds: int) -> None:
    """From launch() to the moment when a listener sees the job's first line."""
    from ddp_course import launch
    from ddp_course.process import warm
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
        written.append(max(0.0, first[0] - log.stat().st_mtime))
    warm.close()
    show("launch to first line shown", seen, "s")
    show("line written to line shown", [1e3 * one for one in written], "ms")


def bench_step(rounds: int) -> None:
    """Median step of a 2-rank job: under plain torchrun, launched warm, and launched traced."""
    from ddp_course import launch
    from ddp_course.process import warm

    flags = ["--steps", "200", "--width", "512"]
    knobs = {"steps": 200, "width": 512}
    plain: list[float] = []
    untraced: list[float] = []
    traced: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "DDP_COURSE_RUN": folder}
            subprocess.run(
                [*torchrun(2), str(JOB), *flags], env=env, check=True, capture_output=True
            )
            text = Path(folder, "events-0.jsonl").read_text()
        plain.append(json.loads(text.splitlines()[-1])["step_ms"])
        for target, trace in ((untraced, False), (traced, True)):
            run = launch(str(JOB), ranks=2, trace=trace, wait=False, **knobs).wait()
            target.append(run.value("step_ms"))
    warm.close()
    for name, times in {"plain torchrun": plain, "launched": untraced, "traced": traced}.items():
        show(f"step, {name}", times, "ms")
        ratios = [a / b for a, b in zip(times, plain, strict=True)]
        print(f"{'':28}{statistics.median(ratios):8.3f} of plain torchrun")


def bench_memory(rounds: int) -> None:
    """Proportional memory (PSS, proc(5)) of four ranks that wait, warm and plain."""
    from ddp_course import launch
    from ddp_course.process import warm

    with tempfile.NamedTemporaryFile("w", suffix=".py") as job:
        job.write(
            "import time, torch, torch.distributed as dist\n"
            "from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "dist.init_process_group('gloo')\n"
            "DDP(torch.nn.Linear(10, 10))(torch.ones(1, 10)).sum().backward()\n"
            "dist.barrier()\nprint('ready', flush=True)\ntime.sleep(60)\n"
        )
        job.flush()
        for way in (True, False):
            run = launch(job.name, ranks=RANKS, warm=way, wait=False)
            while len({line.rank for line in run.tail(50) if line.text == "ready"}) < RANKS:
                time.sleep(0.05)
            # The pids of a plain launch are looked up every half second.
            while any(lane.pid is None for lane in run.lanes()):
                time.sleep(0.05)
            total = sum(pss_bytes(lane.pid) for lane in run.lanes() if lane.pid)
            run.stop()
            run.wait()
            print(f"{'warm' if way else 'plain':28}{total / 2**20 / RANKS:8.0f} MB a rank")
    warm.close()


def bench_slider(rounds: int) -> None:
    """From a slider's move to the new figure: a traced 4-rank job, its timeline drawn."""
    from ddp_course import launch, timeline
    from ddp_course.process import warm

    times: list[float] = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        run = launch("overlap_buckets", ranks=RANKS, trace=True, wait=False)
        timeline(run)._repr_html_()
        if number:
            times.append(time.perf_counter() - began)
    warm.close()
    show("slider to figure", times, "s")


def bench_check(rounds: int) -> None:
    """A check of every exercise's solution, beside one plain 2-rank torchrun of ex05's file."""
    from ddp_course.checks import judge
    from ddp_course.process import warm

    os.environ["DDP_COURSE_EXERCISES"] = "solutions"
    plain = [*torchrun(2), str(judge.exercise_file(judge.EXERCISES["ex05"]))]
    taken: dict[str, list[float]] = {name: [] for name in ("plain torchrun", *judge.EXERCISES)}
    judge.judge("ex00")
    for _ in range(rounds):
        taken["plain torchrun"].append(timed(plain))
        for name in judge.EXERCISES:
            began = time.perf_counter()
            assert judge.judge(name).passed
            taken[name].append(time.perf_counter() - began)
    warm.close()
    base = statistics.median(taken["plain torchrun"])
    for name, times in taken.items():
        show(name, times, "s")
        print(f"{'':28}{statistics.median(times) / base:8.3f} of plain torchrun")


def bench_grading(rounds: int, nbgrader: bool, students: int) -> None:
    """A submission of all solutions in a sandbox, beside plain torchrun; see bench_grading.py."""
    import bench_grading as grading

    grading.bench_submission(rounds, timed, show)
    if students:
        grading.bench_class(students, jobs=2)
    if nbgrader:
        grading.bench_nbgrader(rounds, show)


def warm_launch() -> float:
    from ddp_course import launch

    began = time.perf_counter()
    run = launch(str(JOB), ranks=RANKS, wait=False).wait()
    assert run.ok, run
    return time.perf_counter() - began


def first_launch() -> float:
    text = FIRST.format(job=str(JOB), ranks=RANKS)
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return float(done.stdout)


def torchrun(ranks: int = RANKS) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}",
    ]  # fmt: skip


def spawn_file() -> str:
    path = Path(os.environ["DDP_COURSE_RUNS"], "bench_spawn.py")
    path.write_text(SPAWN)
    return str(path)


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def pss_bytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.split("\nPss:")[1].split()[0]) * 1024


def show(name: str, times: list[float], unit: str) -> None:
    low, high = min(times), max(times)
    print(f"{name:28}{statistics.median(times):8.3f} {unit}   ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
