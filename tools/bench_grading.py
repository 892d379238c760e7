"""What grading costs: a submission of all solutions, in a sandbox and without, beside its peers.

Part of bench.py (`--only grading`). With `--nbgrader` it also installs nbgrader into a folder of
its own and times `nbgrader autograde` of a trivial notebook; with `--students 30` it grades a class
of so many.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Show = Callable[[str, list[float], str], None]


def bench_submission(rounds: int, timed: Callable[[list[str]], float], show: Show) -> None:
    """Seconds per exercise of one submission that has all, beside one plain torchrun."""
    from ddp_course.checks.exercises import EXERCISES
    from ddp_course.process import warm
    from ddp_grading import batch, sandbox
    from ddp_grading.box import Desk

    solutions = ROOT / "solutions"
    one = EXERCISES["ex05"]  # a 2-rank job
    plain = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    plain += ["--local-addr=127.0.0.1", "--nproc-per-node=2", str(solutions / f"{one.stem}.py")]
    names = ("plain torchrun", "sandboxed, all", "sandboxed, only one", "without a sandbox, all")
    taken: dict[str, list[float]] = {name: [] for name in names}
    with sandbox.image() as image:
        for _ in range(rounds):
            taken["plain torchrun"].append(timed(plain))
            began = time.perf_counter()
            with Desk(image, solutions) as desk:
                for each in EXERCISES.values():
                    assert desk.judge(each, f"{each.stem}.py").passed
            taken["sandboxed, all"].append((time.perf_counter() - began) / len(EXERCISES))
            began = time.perf_counter()
            with Desk(image, solutions) as desk:
                assert desk.judge(one, f"{one.stem}.py").passed
            taken["sandboxed, only one"].append(time.perf_counter() - began)
            began = time.perf_counter()
            for each in EXERCISES.values():
                assert batch._judge_unsafely(each, solutions / f"{each.stem}.py").passed
            taken["without a sandbox, all"].append((time.perf_counter() - began) / len(EXERCISES))
    warm.close()
    base = taken["plain torchrun"]
    for name, times in taken.items():
        show(name, times, "s an exercise")
        ratio = statistics.median(a / b for a, b in zip(times, base, strict=True))
        print(f"{'':28}{ratio:8.3f} of plain torchrun")


def bench_class(students: int, jobs: int) -> None:
    """A class in which everybody has handed in every solution, by the command itself."""
    from ddp_course.checks.exercises import EXERCISES

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = [f"s{n:03}" for n in range(students)]
        for one in ids:
            shutil.copytree(ROOT / "solutions", folder / "in" / one)
        (folder / "r.csv").write_text("\n".join(["id", *ids]) + "\n")
        command = [sys.executable, "-m", "ddp_course", "grade", str(folder / "in")]
        command += [
            "--roster",
            str(folder / "r.csv"),
            "--out",
            str(folder / "out"),
            "-j",
            str(jobs),
        ]
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - began
    each = took / students / len(EXERCISES)
    print(f"{students} students × {len(EXERCISES)} exercises at -j {jobs}: {took:.1f} s, "
          f"{each:.3f} s for each exercise of each student")  # fmt: skip


def bench_nbgrader(rounds: int, show: Show) -> None:
    """`nbgrader autograde` of a notebook with one cell, `assert answer() == 1`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "nbgrader", "ipykernel"], check=True)
        course = folder / "course"
        (course / "source" / "ps1").mkdir(parents=True)
        (course / "source" / "ps1" / "one.ipynb").write_text(json.dumps(_notebook()))
        env = {**os.environ, "HOME": name, "PATH": f"{python.parent}:{os.environ['PATH']}"}

        def nbgrader(*words: str) -> None:
            command = [python, "-m", "nbgrader", *words]
            ran = subprocess.run(command, cwd=course, env=env, capture_output=True, text=True)
            if ran.returncode:
                raise RuntimeError(ran.stderr[-2000:])

        nbgrader("generate_assignment", "ps1")
        shutil.copytree(course / "release" / "ps1", course / "submitted" / "ada" / "ps1")
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            nbgrader("autograde", "ps1", "--force")
            times.append(time.perf_counter() - began)
        show("nbgrader, trivial notebook", times, "s")


def _notebook() -> dict[str, object]:
    def cell(text: str, **more: object) -> dict[str, object]:
        about = {"schema_version": 3, "task": False, "locked": False, **more}
        return {
            "cell_type": "code",
            "execution_count": None,
            "id": str(more["grade_id"]),
            "metadata": {"nbgrader": about},
            "outputs": [],
            "source": text,
        }

    answer = cell(
        "def answer():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION",
        grade=False, solution=True, grade_id="answer",
    )  # fmt: skip
    test = cell("assert answer() == 1", grade=True, solution=False, grade_id="test", points=1)
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": [answer, test],
        "metadata": {"kernelspec": spec},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
