"""The sandbox: what a submission sees and can do, and that right answers pass in it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY, patch

import pytest
from conftest import needs
from corpora import entries
from launching import family, short_temp, until

from ddp_course.checks.exercises import EXERCISES
from ddp_grading import box, kernel, sandbox
from ddp_grading.box import Box, Desk, Limits
from ddp_grading.sandbox import NoSandbox, Sandbox

ROOT = Path(__file__).resolve().parent.parent
SECRET = "a-secret-of-the-grader"

# What a process can see and do, as JSON.
LOOK = """
import contextlib, json, os, socket, sys

def can(what):
    try:
        what()
    except (OSError, ImportError, AttributeError):
        return False
    return True

def oracle():
    sys.path.insert(0, sys.argv[1])
    import ddp_course.checks.exercises

status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "environment": dict(os.environ),
    "first_environment": open("/proc/1/environ", errors="replace").read() if can(
        lambda: open("/proc/1/environ").read()) else "",
    "uid": os.getuid(),
    "capabilities": status["CapEff"].strip(),
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "solutions": can(lambda: os.listdir(os.path.join(sys.argv[1], "solutions"))),
    "oracle": can(oracle),
    "host": socket.gethostname(),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "standard_input": os.readlink("/proc/self/fd/0"),
    "writable": [place for place in ("/", "/dev", "/etc", "/usr", "/submission", "/sockets",
                 "/course", sys.prefix, "/tmp", "/dev/shm") if can(
                 lambda: open(os.path.join(place, "new"), "w").close())],
    "etc": sorted(os.listdir("/etc")),
}))
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    with sandbox.image() as folder:
        yield folder


@pytest.fixture(scope="module")
def seen(image: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What LOOK finds inside."""
    folder = tmp_path_factory.mktemp("look")
    with patch.dict(os.environ, {"GRADER_TOKEN": SECRET}):
        inside = Sandbox(image, folder, folder, ["-c", LOOK, str(ROOT)])
    until(lambda: inside.ended, "the end of a short script")
    inside._said.seek(0)
    said = inside._said.read().decode()
    inside.kill()
    return dict(json.loads(said))


@needs("bwrap")
def test_without_it_everything_is_in_reach(seen: dict[str, object]) -> None:
    """The threat is real: the same script outside sees and reaches what it must not."""
    look = LOOK.replace('open(os.path.join(place, "new"), "w").close()', "os.stat(place)")
    ran = subprocess.run(
        [sys.executable, "-c", look, str(ROOT)],
        env={**os.environ, "GRADER_TOKEN": SECRET},
        capture_output=True,
        text=True,
        check=True,
    )
    outside = json.loads(ran.stdout)
    assert outside["environment"]["GRADER_TOKEN"] == SECRET
    assert outside["solutions"] and outside["oracle"]
    assert outside["processes"] > 10 or outside["interfaces"] != ["lo"] or outside["uid"] == 0
    assert not (seen["solutions"] or seen["oracle"])


@needs("bwrap")
def test_a_process_inside_sees_nothing_of_the_grader(seen: dict[str, object]) -> None:
    assert set(seen["environment"]) <= {*sandbox.environment(), "PWD", "LC_CTYPE"}
    assert SECRET not in json.dumps(seen)
    assert seen["first_environment"] == ""
    assert (seen["uid"], int(str(seen["capabilities"]), 16)) == (65534, 0)
    assert seen["no_new_privileges"] == "1"
    assert int(str(seen["processes"])) <= 3
    assert (seen["host"], seen["interfaces"]) == ("sandbox", ["lo"])
    assert seen["standard_input"] == "/dev/null"
    assert seen["writable"] == ["/tmp", "/dev/shm"]
    etc = {"hosts", "passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives"}
    assert set(seen["etc"]) <= etc


def test_the_image_holds_no_oracle_and_all_that_a_rank_imports(image: Path) -> None:
    files = {str(path.relative_to(image / "course")) for path in (image / "course").rglob("*.py")}
    seen = {Path(file).name for file in files if "exercises/ex" in file}
    assert seen == {"__init__.py", "drive.py"}, "neither oracles nor wrong answers"
    assert not any("judge" in file or "manifest" in file for file in files)
    assert {file for file in files if "grading" in file} == {
        "ddp_grading/__init__.py",
        "ddp_grading/inside.py",
    }
    drives = [f"exercises/{one.stem}/drive.py" for one in EXERCISES.values()]
    programs = ["checks/driver.py", "process/host.py", "process/guard.py", "process/shim.py"]
    for file in programs + drives:
        assert missing(f"ddp_course/{file}", files, set()) == set(), file
    assert missing("ddp_grading/inside.py", files, set()) == set()
    for path in image.rglob("*.py"):
        text = path.read_text()
        assert not any(f"{one.stem}" in text for one in EXERCISES.values()), path


def missing(file: str, files: set[str], looked: set[str]) -> set[str]:
    """Modules of ours that this file needs, at its top or through another, and the image lacks."""
    if file in looked:
        return set()
    looked.add(file)
    lacking = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddp_"):
            base = (node.module or "").replace(".", "/")
            names = [f"{base}/{one.name}.py" for one in node.names] + [f"{base}.py"]
            found = [name for name in names if (ROOT / name).exists()]
            lacking |= {name for name in found if name not in files}
            for name in found:
                lacking |= missing(name, files, looked)
    return lacking


def test_no_other_copy_of_the_course_is_seen(image: Path, tmp_path: Path) -> None:
    """Where the course itself lies in a folder that is mounted, it is covered."""
    with patch.object(sandbox, "_COURSE", Path(sys.prefix) / "share" / "course"):
        words = sandbox.command(
            image, tmp_path, tmp_path, info=3, gate=4, hidden=[Path(sys.prefix) / "x"]
        )
    covered = [words[i + 1] for i, word in enumerate(words) if word == "--tmpfs"]
    home = Path(sys.prefix).resolve()
    assert {str(home / "share" / "course"), str(home / "x")} <= set(covered)


def test_no_bubblewrap_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoSandbox, match="apt-get install bubblewrap"):
        sandbox.version()


def test_a_bubblewrap_that_may_not_work_is_said_too(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox, "_bwrap", lambda: str(fake))
    with pytest.raises(NoSandbox, match="uid map: Permission denied"):
        Sandbox(image, tmp_path, tmp_path, ["-c", ""])


@needs("bwrap")
def test_whatever_ends_it_everything_in_it_ends(image: Path, tmp_path: Path) -> None:
    stubborn = (
        "import os, signal, time\n"
        "for n in (15, 2, 1):\n    signal.signal(n, signal.SIG_IGN)\n"
        "os.fork()\nos.setsid() if os.fork() == 0 else 0\n"
        "time.sleep(600)"
    )
    for end in ("kill", "interrupt", "init"):
        inside = Sandbox(image, tmp_path, tmp_path, ["-c", stubborn])
        until(lambda inside=inside: len(inside.processes()) == 4, "four processes")
        pids = inside.processes() | {inside.init}
        if end == "init":
            os.kill(inside.init, 9)
        elif end == "interrupt":
            inside.interrupt()
        else:
            inside.kill()
        until(lambda pids=pids: not any(os.path.exists(f"/proc/{pid}") for pid in pids), end)
        if end != "kill":
            inside.kill()


CGROUPS = {kind for _, _, kinds in kernel._places() for kind in kinds}


@needs("bwrap")
@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("outside", [None, 0])
def test_the_kernel_limits_processes_and_memory_by_what_this_machine_has(
    image: Path, groups: bool, outside: int | None
) -> None:
    """Nobody looks from outside here: 300 forks and 192 MB are refused, or they are not."""
    expected: dict[str, object] = {}
    if outside is None and (os.geteuid() != 0 or sandbox.user_outside()):
        expected["pids"] = "user namespace"
    if groups:
        expected |= dict.fromkeys(CGROUPS, ANY)
    assert sandbox.limits(image, groups=groups, outside=outside) == expected


@needs("bwrap")
def test_a_grader_that_is_root_gives_the_sandbox_another_user(image: Path, tmp_path: Path) -> None:
    assert (sandbox.user_outside() > 0) is (os.geteuid() == 0)
    inside = Sandbox(image, tmp_path, tmp_path, ["-c", "import time; time.sleep(60)"])
    until(inside.processes, "the program")
    assert {os.stat(f"/proc/{pid}").st_uid for pid in inside.processes()} <= {
        0,  # while it is not yet nobody
        sandbox.user_outside() or os.geteuid(),
    }
    inside.kill()


def test_a_group_of_v2_is_made_where_it_was_delegated(tmp_path: Path) -> None:
    """Not in the grader's own, which has processes, but beside it."""
    own = tmp_path / "user" / "app" / "shell.scope"
    own.mkdir(parents=True)
    for folder, enabled in ((own, ""), (own.parent, "cpu memory pids"), (tmp_path, "memory pids")):
        (folder / "cgroup.subtree_control").write_text(enabled)
    (own.parent.parent / "cgroup.subtree_control").write_text("memory pids")
    places = list(kernel._delegated(own, tmp_path))
    assert places == [(own.parent, "cgroup v2", {"memory", "pids"})]


@needs("bwrap")
def test_the_watchdog_ends_a_box_whose_grader_is_stuck(image: Path, answers: Path) -> None:
    begun = time.monotonic()
    with Desk(image, answers) as desk:
        with box._watchdog(0.5, desk._open().kill):
            until(lambda: desk._open()._sandbox.ended, "the end")  # type: ignore[union-attr]
        assert time.monotonic() - begun < 60


@needs("bwrap")
def test_it_ends_with_the_grader(tmp_path: Path) -> None:
    """The grader is killed: its sandbox goes with it, though nobody could tell it."""
    code = """
import sys, time
from pathlib import Path
from ddp_grading import sandbox

with sandbox.image(Path(sys.argv[1])) as image:
    inside = sandbox.Sandbox(image, image, image, ["-c", "import time; time.sleep(600)"])
    while not inside.processes():  # bubblewrap has made its arrangements when it starts something
        if inside.ended:
            sys.exit(inside.last_words())
        time.sleep(0.01)
    print(inside.init, flush=True)
    time.sleep(600)
"""
    grader = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert grader.stdout is not None
    init = int(grader.stdout.readline())
    assert os.path.exists(f"/proc/{init}")
    grader.kill()
    grader.wait()
    grader.stdout.close()
    until(lambda: not os.path.exists(f"/proc/{init}"), "the end of the sandbox")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right answers: the solutions, and those that are written in another way."""
    folder = tmp_path_factory.mktemp("answers")
    for one in EXERCISES.values():
        solution = (ROOT / "solutions" / f"{one.stem}.py").read_text()
        (folder / f"{one.name}.py").write_text(solution)
    for entry in entries("accepted"):
        (folder / f"{entry.exercise}-other.py").write_text(entry.text)
    return folder


@pytest.fixture(scope="module")
def desk(image: Path, answers: Path) -> Iterator[Desk]:
    temp = short_temp(answers)
    with patch.object(tempfile, "tempdir", temp), Desk(image, answers) as desk:
        yield desk
        box_ = desk._box
    assert box_ is None or box_._sandbox is None or box_._sandbox.ended
    assert os.listdir(temp) == [], "nothing of a box is left"
    os.rmdir(temp)


@needs("bwrap")
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_passes(name: str, ranks: int, desk: Desk) -> None:
    exercise = EXERCISES[name]
    if name == "ex05" and ranks != 2:
        return  # two stages, hence two ranks
    box_ = desk._open()
    verdict = desk.judge(exercise, f"{name}.py", ranks=ranks)
    assert verdict.passed, str(verdict)
    assert verdict.points == verdict.max_points
    assert desk._box is box_, "the next exercise has the same box, which was clean"


@needs("bwrap")
@pytest.mark.parametrize("name", EXERCISES)
def test_another_right_answer_passes_on_a_busy_machine(name: str, desk: Desk) -> None:
    burn = "import os\nwhile os.getppid() == {}:\n    sum(range(10000))"
    busy = [
        subprocess.Popen([sys.executable, "-S", "-c", burn.format(os.getpid())])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        verdict = desk.judge(EXERCISES[name], f"{name}-other.py")
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("name", [one.name for one in EXERCISES.values() if one.talks])
def test_what_a_right_answer_moves_is_far_above_noise(name: str) -> None:
    """A job that says nothing moves some 200 bytes; a DDP constructor some 10,000 at most."""
    assert all(EXERCISES[name].moves(ranks) >= 20_000 * (ranks - 1) for ranks in (2, 3, 4))


@needs("bwrap")
def test_a_job_of_two_ranks_is_the_probe(image: Path) -> None:
    assert box.probe(image) == ""


@needs("bwrap")
def test_what_is_our_fault_is_tried_once_more_and_never_scored(
    image: Path, answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that leaves at once: the submission's code never ran."""
    begun = []
    really = Box.run

    def run(self: Box, *arguments: object, **named: object) -> object:
        begun.append(1)
        return really(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(box, "_DRIVER", "/usr/lib/no-driver.py")
    monkeypatch.setattr(Box, "run", run)
    with Desk(image, answers) as desk:
        verdict = desk.judge(EXERCISES["ex00"], "ex00.py")
    assert (verdict.status, verdict.points, len(begun)) == ("infra", 0, 2)
    assert all(one.status == "infra" for one in verdict.results)


@needs("bwrap")
def test_a_spoiled_box_is_not_the_next_exercises_problem(image: Path, answers: Path) -> None:
    """What an earlier answer left dead in the box costs a new box, and no points."""
    with Desk(image, answers) as desk:
        assert desk.judge(EXERCISES["ex00"], "ex00.py").passed
        first = desk._open()
        first.used = True
        first.kill()
        assert desk.judge(EXERCISES["ex00"], "ex00.py").passed
        assert desk._box is not first


@needs("bwrap")
def test_python_may_be_installed_below_what_is_scratch_inside(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, is not taken for something left over, and is no place to leave something."""
    solution = (ROOT / "solutions" / f"{EXERCISES['ex00'].stem}.py").read_text()
    real = sandbox._python_roots()
    with tempfile.TemporaryDirectory(dir="/tmp") as above:
        python = Path(above, "nested", "python")
        python.mkdir(parents=True)
        (python / "module.py").write_text("")
        monkeypatch.setattr(sandbox, "_python_roots", lambda: [*real, str(python)])
        look = f"assert open({str(python / 'module.py')!r}).read() == ''\n"
        leave = f"open({str(python.parent / 'note')!r}, 'w').close()\n"
        (tmp_path / "looks.py").write_text(look + solution)
        (tmp_path / "leaves.py").write_text(look + leave + solution)
        with Desk(image, tmp_path) as desk:
            for file in ("looks.py", "leaves.py", "looks.py"):
                assert desk._box is None or desk._box.is_clean()
                passed = desk.judge(EXERCISES["ex00"], file).passed
                # It belongs to who made it, which is root where the sandbox has another user.
                assert passed is (file == "looks.py" or not sandbox.user_outside())
    assert not (python.parent / "note").exists()


@needs("bwrap")
def test_a_desk_that_is_abandoned_gives_no_verdict(image: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ndef sum_over_ranks(number):\n    time.sleep(600)\n"
    )
    before = len(family(os.getpid()))
    with Desk(image, tmp_path, limits=Limits(patience_s=300)) as desk:
        ended: list[BaseException] = []

        def work() -> None:
            try:
                desk.judge(EXERCISES["ex00"], "slow.py")
            except box.Abandoned as error:
                ended.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        until(lambda: desk._box is not None and desk._box.used, "the answer to run")
        began = time.monotonic()
        desk.abandon()
        worker.join(60)
        assert ended and time.monotonic() - began < 60
    until(lambda: len(family(os.getpid())) <= before, "all processes to be gone")
