"""Verdicts on pretended machines, and one look at the real one."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ddp_course.machine import Facts, Name, Report, doctor, judge, proves, resolve

GOOD = Facts(
    python=(3, 12, 1),
    executable="/x/bin/python",
    torch="2.14.1",
    torchvision="0.29.1",
    backends={"gloo": True, "nccl": True, "mpi": False},
    cores=8,
    memory_gb=16.0,
    shm_gb=8.0,
    disk_gb=100.0,
    names={"localhost": Name("127.0.0.1", 0.001), "host": Name("10.0.0.5", 0.001)},
)


def report(**changes: Any) -> Report:
    return judge(dataclasses.replace(GOOD, **changes))


def test_a_good_machine_is_told_so() -> None:
    good = report()
    assert good.ok
    assert {row.status for row in good.rows} == {"ok"}
    assert str(good).startswith("The course can run on this machine.\n")


@pytest.mark.parametrize(
    ("changes", "row", "remedy"),
    [
        ({"python": (3, 10, 9)}, "Python", "3.11, 3.12 or 3.13"),
        ({"python": (3, 14, 0)}, "Python", "3.11, 3.12 or 3.13"),
        ({"torch": None}, "torch", "make setup"),
        ({"torch": "2.13.0"}, "torch", "2.14.1"),
        ({"torch_error": "ImportError: libcudart.so"}, "torch", "rm -rf .venv"),
        ({"torchvision": None}, "torchvision", "make setup"),
        ({"backends": {"gloo": False}}, "backends", "without Gloo"),
        ({"backends": {}}, "backends", "without Gloo"),
        ({"memory_gb": 0.4}, "memory free", "close other programs"),
        ({"loopback_error": "127.0.0.1 cannot be reached"}, "loopback", "ip link set lo up"),
        ({"names": {"localhost": Name(None, 0.1)}}, "name localhost", "127.0.0.1 localhost"),
        ({"disk_gb": 0.01}, "room for runs", "make room"),
        ({"system": "win32"}, "system", "wsl --install"),
    ],
)
def test_what_stops_the_course_is_a_problem_with_its_remedy(
    changes: dict[str, Any], row: str, remedy: str
) -> None:
    bad = report(**changes)
    problems = [found for found in bad.rows if found.status == "problem"]
    assert [problem.name for problem in problems] == [row]
    assert remedy in problems[0].remedy
    assert not bad.ok
    assert str(bad).startswith("The course cannot run yet: 1 problem to solve.\n")


@pytest.mark.parametrize(
    ("changes", "row", "remedy"),
    [
        ({"torch": "2.16.1+cpu"}, "torch", "newer than"),
        ({"cores": 1}, "cores", "take turns"),
        ({"memory_gb": 2.0}, "memory free", "2 ranks"),
        ({"names": {"host": Name(None, 3.0)}}, "name host", "127.0.0.1 host"),
        ({"names": {"host": Name("10.0.0.5", 2.5)}}, "name host", "/etc/hosts"),
        ({"shm_gb": 0.064}, "/dev/shm", "--shm-size"),
        ({"disk_gb": 0.5}, "room for runs", "traced runs"),
        ({"can_fork": False}, "warm start", "plain torchrun"),
    ],
)
def test_what_does_not_stop_the_course_is_a_note(
    changes: dict[str, Any], row: str, remedy: str
) -> None:
    noted = report(**changes)
    notes = [found for found in noted.rows if found.status == "note"]
    assert [note.name for note in notes] == [row]
    assert remedy in notes[0].remedy
    assert noted.ok


@pytest.mark.parametrize("changes", [{"memory_gb": None}, {"shm_gb": None}, {"disk_gb": None}])
def test_what_cannot_be_seen_is_no_problem(changes: dict[str, Any]) -> None:
    assert report(**changes).ok


def test_says_what_each_number_of_gpus_proves() -> None:
    assert "cannot show the speed of GPUs" in proves(0)
    assert "one rank runs on it with NCCL" in proves(1)
    assert "up to 4 ranks run on a GPU of their own" in proves(4)
    four = report(gpus=("H", "H", "H", "H"))
    assert four.proves == proves(4)
    assert "H, H, H, H" in str(four)


def test_a_shell_shows_the_text() -> None:
    assert repr(report()) == str(report())


def test_page_and_text_say_the_same() -> None:
    bad = report(torch_error="<broken>", cores=1, gpus=("A & B",))
    page, text = bad._repr_html_(), str(bad)
    for row in bad.rows:
        assert row.name in text
        assert row.value in text
        assert row.remedy in text
        assert row.name in page
    assert "&lt;broken&gt;" in page
    assert "<broken>" not in page
    assert bad.verdict in page
    assert bad.proves in page


def test_a_name_that_never_answers_costs_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = threading.Event()

    def hang(*arguments: object, **options: object) -> None:
        never.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    found = resolve("slow.example", limit_s=0.05)
    never.set()
    assert found.address is None


def test_a_name_that_does_not_resolve_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert resolve("nowhere.example").address is None


def test_this_machine_can_run_the_course() -> None:
    here = doctor()
    assert here.ok, str(here)
    assert {row.name for row in here.rows} >= {"Python", "torch", "cores", "/dev/shm", "sandbox"}


def test_torch_is_asked_once_until_something_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    answer = json.dumps({"gpus": [], "backends": {"gloo": True}})

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        broken = os.environ.get("CUDA_VISIBLE_DEVICES") == "broken"
        return subprocess.CompletedProcess(command, int(broken), answer, "ImportError: no")

    monkeypatch.setenv("DDP_COURSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(subprocess, "run", run)
    assert [doctor().ok, doctor(short=True).ok, len(asked)] == [True, True, 1]
    assert [doctor(fresh=True).ok, len(asked)] == [True, 2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "broken")
    assert [doctor().ok, doctor().ok, len(asked)] == [False, False, 4]  # no failure is kept


def test_the_doctor_imports_no_torch_into_the_kernel() -> None:
    code = "import sys, ddp_course; ddp_course.doctor(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
