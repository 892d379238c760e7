"""launch(): every promise, kept both ways: warm, and by a plain torchrun."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from launching import WARM_NOW_PLAIN_NIGHTLY, caller, family, lives, script, until, ways

from ddp_course import diagnose, launch, notebook
from ddp_course.errors import BadArgument, CannotRun
from ddp_course.launcher import catalogue, live, plan
from ddp_course.launcher import launch as launcher
from ddp_course.run import folder as run_folder
from ddp_course.run.run import Run
from ddp_course.show import panel

PATIENT_LIMITS_S = (8, 25, 90)  # the next one where a busy machine was not ready in time
LONG_S = 240  # a limit that no test reaches


@pytest.fixture(params=[True, False], ids=["warm", "plain"])
def way(request: pytest.FixtureRequest) -> bool:
    """Both ways to start: `warm=way`."""
    return bool(request.param)


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A test that fails leaves no run for the next one to wait for."""
    yield
    for run in launcher.live_runs():
        run.stop()


def start(job: Path, ranks: int, way: bool, **more: Any) -> Run:
    """Launch without waiting."""
    return launch(job, ranks=ranks, warm=way, wait=False, **{"limit_s": LONG_S, **more})


def shows(run: Run, text: str) -> Any:
    """Whether this line has been seen, without waiting for the end."""
    return any(text in line.text for line in run.tail(10_000))


# What a run is


KNOBS_JOB = """
    '''A job with knobs.'''
    import argparse, json, os, sys
    from ddp_course.rank.report import log, run_rank

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--bucket-mb", type=float, default=25)
        parser.add_argument("--text", default="")
        parser.add_argument("--rates", type=float, nargs="+")
        parser.add_argument("--shuffle", action="store_true")
        parser.add_argument("--max", type=int)  # torchrun has a --max-restarts
        knobs = vars(parser.parse_args())
        rank = int(os.environ["RANK"])
        # One write a line: in a shell the ranks share one output.
        said = json.dumps(knobs, sort_keys=True)
        sys.stdout.write(f"rank {rank} of {os.environ['WORLD_SIZE']} {said}\\n")
        sys.stdout.write(f"cwd {os.getcwd()} file {__file__}\\n")
        for step in range(3):
            log(step=step, loss=1.0 / (step + 1), who=rank)
        print("a warning", file=sys.stderr)

    if __name__ == "__main__":
        run_rank(main)
    """


def test_a_run_is_all_that_happened(
    tmp_path: Path, way: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "un dossier, 漢字 & 'quotes'"
    job = script(folder, KNOBS_JOB, "my jöb.py")
    monkeypatch.chdir(tmp_path)
    knobs = {"bucket_mb": -1, "text": "--a b\n'$HOME' é", "rates": [0.5, -1], "shuffle": True}
    knobs["max"] = 3
    run = launch(job, ranks=2, warm=way, **knobs)
    printed = capsys.readouterr().out

    assert run.ok
    assert (run.done, run.state, run.ended, run.failure) == (True, "done", "finished", None)
    assert (run.ranks, run.knobs, run.exit_codes) == (2, knobs, {0: 0, 1: 0})
    assert run.values("loss", rank=1) == [1.0, 0.5, 1 / 3]
    assert run.by_rank("who") == {0: 0, 1: 1}
    assert run.lines_of(1, "stderr")[-1] == "a warning"
    assert [lane.state for lane in run.lanes()] == ["done", "done"]
    assert [lane.step for lane in run.lanes()] == [2, 2]
    assert all(lane.last_line for lane in run.lanes())
    assert run.wall_s == run.elapsed_s > 0
    said = run.lines_of(0, "stdout")
    assert said[0] == "rank 0 of 2 " + json.dumps(
        {**knobs, "bucket_mb": -1.0, "rates": [0.5, -1.0]}, sort_keys=True
    )
    assert said[1] == f"cwd {tmp_path} file {job}"

    assert (run.folder / "job.py").read_text() == job.read_text()
    assert run.folder.parent == run_folder.runs_folder()
    assert "my_j_b" in run.folder.name
    again = Run.open(run.folder)
    assert (again.lines, again.metrics, again.exit_codes, again.wall_s, again.command) == (
        run.lines, run.metrics, run.exit_codes, run.wall_s, run.command,
    )  # fmt: skip
    for shown in (str(run), printed):
        assert run.command in shown
        assert "ok, 2 ranks" in shown
    assert "[rank 1] rank 1 of 2" in printed
    assert "2 ranks" in run._repr_html_()

    if not way:  # the command is the same both ways
        pasted = subprocess.run(
            ["sh", "-c", run.command], cwd="/", capture_output=True, text=True, timeout=LONG_S
        )
        assert pasted.returncode == 0, pasted.stderr
        for rank in (0, 1):
            for line in run.lines_of(rank, "stdout"):
                assert line in pasted.stdout.splitlines()
        assert "[rank 1] step=2  loss=0.3333  who=1" in pasted.stdout


def test_a_job_of_the_course_by_name(way: bool) -> None:
    run = launch("hello_ranks", ranks=3, warm=way, limit_s=LONG_S)
    assert run.ok, run
    assert run.exit_codes == {0: 0, 1: 0, 2: 0}
    assert "Gloo" in str(run), "the choice of the backend is said"


# Failures: the rank that failed first, and its real exit code


FAILURES = {
    # name: (what rank 1 does; its exit code; what is said of it)
    "exception": ("raise ValueError('boom ☠')", 1, "ValueError: boom ☠"),
    "sys.exit(3)": ("sys.exit(3)", 3, "exit code 3"),
    "sys.exit(text)": ("sys.exit('no data')", 1, "no data"),
    "os._exit(7)": ("os._exit(7)", 7, "exit code 7"),
    "kill -9": ("os.kill(os.getpid(), 9)", -9, "SIGKILL"),
    "segfault": ("import ctypes; ctypes.string_at(0)", -11, "SIGSEGV"),
    "import": ("import no_such_module", 1, "ModuleNotFoundError"),
    "abort": ("os.abort()", -6, "SIGABRT"),
    "interrupt": ("os.kill(os.getpid(), 2); time.sleep(60)", -2, "KeyboardInterrupt"),
    "generator": ("open('no-such-file')", 1, "FileNotFoundError: [Errno 2]"),
}


@ways("name", FAILURES, plain=["exception", "kill -9", "sys.exit(text)"])
def test_the_rank_that_failed_is_named_with_its_exit_code(
    tmp_path: Path, way: bool, name: str
) -> None:
    statement, code, words = FAILURES[name]
    job = script(
        tmp_path,
        f"""
        import os, sys, time
        print("started", flush=True)
        if os.environ["RANK"] == "1":
            {statement}
        time.sleep(60)  # as in a collective that never completes
        """,
    )
    run = launch(job, ranks=2, warm=way, limit_s=LONG_S)
    assert not run.ok
    assert run.ended == "failed"
    assert run.exit_codes[1] == code
    failure = run.failure
    assert failure is not None
    assert (failure.rank, failure.exit_code) == (1, code)
    assert words in failure.what
    if code == 1 and name != "sys.exit(text)":
        assert failure.traceback.startswith("Traceback (most recent call last)")
        assert str(job) in failure.traceback
        assert "host.py" not in failure.traceback
        assert failure.traceback.count("  File ") == 1
    assert failure.consequences.keys() <= {0}
    last = str(run).splitlines()[-3:]
    assert f"FIRST FAILURE: {failure.what}" in last, "the cause comes last, with what to do"
    assert run.wall_s < 50, "the other rank was not waited for"


@WARM_NOW_PLAIN_NIGHTLY
def test_a_syntax_error_shows_its_line(tmp_path: Path, way: bool) -> None:
    job = script(tmp_path, "x = 1\ndef broken(:\n    pass\n")
    run = launch(job, ranks=2, warm=way, limit_s=LONG_S, bucket_mb=3)
    assert run.failure is not None
    assert "SyntaxError" in run.failure.what
    assert "def broken(:" in run.failure.traceback
    assert run.failure.exit_code == 1


@WARM_NOW_PLAIN_NIGHTLY
def test_leaving_early_without_an_error_is_a_success(tmp_path: Path, way: bool) -> None:
    job = script(tmp_path, "import os\nprint('done', flush=True)\nos._exit(0)\nraise SystemExit(1)")
    run = launch(job, ranks=2, warm=way, limit_s=LONG_S)
    assert run.ok
    assert run.exit_codes == {0: 0, 1: 0}


@WARM_NOW_PLAIN_NIGHTLY
def test_the_victim_is_louder_than_the_culprit(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os, sys, time
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        dist.barrier()
        if rank == 1:
            os._exit(9)  # without a word, and first
        try:
            dist.all_reduce(torch.ones(4))
            dist.all_reduce(torch.ones(4))
        finally:
            print("rank", rank, "complains at length\\n" * 30, file=sys.stderr)
        """,
    )
    run = launch(job, ranks=3, warm=way, limit_s=LONG_S)
    failure = run.failure
    assert failure is not None
    assert (failure.rank, failure.exit_code) == (1, 9)
    assert 1 not in failure.consequences
    assert failure.consequences, "the victims are told, and folded"
    assert "<details>" in run._repr_html_()


# Output


def test_output_is_whole_in_order_and_tagged(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os, sys, threading
        rank = int(os.environ["RANK"])
        for number in range(2000):
            print(f"rank {rank} line {number} naïve 漢字 🙂")
            if number % 2:
                os.write(1, f"raw {rank} {number}\\n".encode())
            else:
                print(f"error {rank} {number}", file=sys.stderr)
        for part in ("a ", "line ", "in ", "parts"):
            print(part, end="", flush=True)
        print()
        if rank == 0:
            sys.stdout.buffer.write(b"\\xff\\xfe\\x00 rubbish \\x80\\n")
            print("x" * (1 << 20))
            print("10%\\r50%\\r100%")
            print("\\x1b[31mred\\x1b[0m <b>&amp;</b>")
        print(f"no newline at the end of {rank}", end="")
        """,
    )
    run = launch(job, ranks=3, warm=way, limit_s=LONG_S)
    assert run.ok
    for rank in range(3):
        out, err = run.lines_of(rank, "stdout"), run.lines_of(rank, "stderr")
        expected = []
        for number in range(2000):
            expected.append(f"rank {rank} line {number} naïve 漢字 🙂")
            expected += [f"raw {rank} {number}"] * (number % 2)
        assert out[: len(expected)] == expected
        assert [line for line in err if line.startswith("error")] == [
            f"error {rank} {number}" for number in range(0, 2000, 2)
        ]
        assert out[len(expected)] == "a line in parts"
        assert out[-1] == f"no newline at the end of {rank}"
    rubbish, long, progress, red = run.lines_of(0, "stdout")[-5:-1]
    assert rubbish == "��\0 rubbish �"
    assert long.startswith("x" * 20_000)
    assert progress == "100%"
    assert red == "\x1b[31mred\x1b[0m <b>&amp;</b>"
    times = [line.t_s for line in run.lines]
    assert times == sorted(times)
    assert Run.open(run.folder).lines == run.lines


def test_a_live_run_shows_and_obeys(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        f"""
        import os, time
        from pathlib import Path
        from ddp_course.rank.report import log
        rank = int(os.environ["RANK"])
        log(step=41, loss=0.5)
        print("alive", rank, flush=True)
        while not Path({str(tmp_path)!r}, "go").exists():
            time.sleep(0.01)
            log(step=42, loss=0.25)
        print("went on", rank, flush=True)
        if rank == 1:
            time.sleep(60)
        """,
    )
    seen: list[str] = []
    threads: set[str] = set()
    run = start(job, 2, way)
    run.subscribe(lambda r: (seen.append(r.state), threads.add(threading.current_thread().name)))
    run.subscribe(lambda r: 1 / 0)  # a listener's defect is not the run's
    until(lambda: shows(run, "alive 0") and shows(run, "alive 1"), "both ranks' lines")
    assert not run.done
    pids = until(
        lambda: [lane.pid for lane in run.lanes()] if all(x.pid for x in run.lanes()) else None,
        "both ranks' process ids",
    )
    assert run.state == "running"
    assert run.elapsed_s > 0
    until(lambda: run.lanes()[1].step == 42, "the lane's step")
    assert run.lanes()[1].loss == 0.25

    run.pause(1)
    until(lambda: psutil.Process(pids[1]).status() == psutil.STATUS_STOPPED, "the pause")
    assert run.lanes()[1].state == "paused"
    run.pause(1)
    run.resume(1)
    until(lambda: psutil.Process(pids[1]).status() != psutil.STATUS_STOPPED, "the resumption")
    assert run.lanes()[1].state == "running"
    with pytest.raises(ValueError, match="no rank 2"):
        run.kill(2)

    (tmp_path / "go").touch()
    until(lambda: shows(run, "went on 1"), "rank 1 to go on")
    run.kill(1)
    run.wait()
    assert run.exit_codes[1] == -9
    assert run.failure is not None
    assert run.failure.rank == 1
    assert "killed by you" in run.failure.what
    assert run.lanes()[1].state == "killed"
    assert seen[-1] == "done"
    assert seen.count("done") == 1
    assert threads == {"ddp-course-launcher"}
    run.stop()
    run.resume(0)
    assert run.ended == "failed", "a run that has ended cannot be stopped"


@WARM_NOW_PLAIN_NIGHTLY
def test_a_stopped_run_says_so(tmp_path: Path, way: bool) -> None:
    job = script(tmp_path, "import time\nprint('alive', flush=True)\ntime.sleep(60)")
    run = start(job, 2, way)
    until(lambda: shows(run, "alive"), "a line")
    waiting = start(job, 2, way)
    assert waiting.state == "queued"
    assert waiting.elapsed_s == 0
    waiting.stop()
    run.stop()
    assert run.wait().ended == "stopped"
    assert waiting.wait().ended == "stopped"
    assert waiting.lines == []
    assert launcher.live_runs() == []
    for shown in (str(run), run._repr_html_(), panel.final_html(run), repr(run.failure)):
        assert "stopped by you" in shown
        assert "SignalException" not in shown
        assert "✗" not in shown, "it has not failed"
    said = str(diagnose(run))
    assert "stopped by you" in said
    assert "failed" not in said
    assert "fail" not in str(diagnose(Run.open(run.folder)))


def test_a_launch_whose_supervisor_stands_still_ends_by_force(
    tmp_path: Path, way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_END_S", 0.5)
    run = start(script(tmp_path, "import time\nprint('alive', flush=True)\ntime.sleep(60)"), 2, way)
    until(lambda: shows(run, "alive") and run.lanes()[0].pid, "a rank")
    parents = psutil.Process(run.lanes()[0].pid).parents()
    supervisor = parents[0] if way else parents[1]  # a plain rank is torchrun's child
    below = [supervisor, *family(supervisor.pid)]
    assert len(below) > 3
    supervisor.suspend()
    run.stop()
    assert run.wait().ended == "stopped"
    assert run.failure is not None
    assert "by force" in run.failure.what
    until(lambda: not any(map(lives, below)), "the end of all its processes")
    assert launch(script(tmp_path, "pass"), ranks=1, warm=way, limit_s=LONG_S).ok


# Limits of time


def test_a_time_out_says_where_every_rank_was(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os, signal, time

        def wait_for_the_others():
            dist.all_reduce(torch.ones(1))

        def count_sheep():
            while True:
                time.sleep(0.01)

        def spin():
            while True:
                pass

        rank = int(os.environ["RANK"])
        if rank < 2:
            import torch, torch.distributed as dist
            dist.init_process_group("gloo", rank=rank, world_size=2)
        print("alive", flush=True)
        if rank == 0:
            wait_for_the_others()
        if rank == 1:
            count_sheep()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        spin()
        """,
    )
    for limit_s in PATIENT_LIMITS_S:
        run = launch(job, ranks=4, warm=way, limit_s=limit_s)
        if sum(line.text == "alive" for line in run.lines) == 4:
            break
    assert run.ended == "time-out"
    assert not run.ok
    failure = run.failure
    assert failure is not None
    assert "limit_s" in failure.what
    assert failure.where.keys() == {0, 1, 2, 3}
    assert "wait_for_the_others" in failure.where[0], failure.where
    assert "count_sheep" in failure.where[1]
    assert "job.py" in failure.where[2]
    assert "spin" in failure.where[3]
    assert "all_reduce" in failure.where[0]
    for rank in range(4):
        assert f"rank {rank} was " in str(run)
    assert not any("Fatal Python error" in line.text for line in run.tail(1000))


@WARM_NOW_PLAIN_NIGHTLY
def test_a_collective_gives_up_before_the_launch_does(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import time
        import torch, torch.distributed as dist
        from ddp_course.rank.place import my_place
        from ddp_course.rank.report import run_rank

        def main():
            place = my_place()
            dist.init_process_group(place.backend, timeout=place.timeout)
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(1))
            time.sleep(60)

        if __name__ == "__main__":
            run_rank(main)
        """,
    )
    for limit_s in PATIENT_LIMITS_S:
        run = launch(job, ranks=2, warm=way, limit_s=limit_s)
        if run.ended == "failed":
            break
    assert run.ended == "failed"
    assert run.failure is not None
    assert run.failure.rank == 0
    assert f"Timed out waiting {limit_s * 500}ms" in run.failure.consequences[0]


def test_a_restarted_rank_completes_the_job(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        from ddp_course.rank.report import log, run_rank

        def main():
            attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            dist.init_process_group("gloo")
            total = torch.ones(1)
            dist.all_reduce(total)
            print("attempt", attempt, "total", total.item(), flush=True)
            if attempt == 0 and dist.get_rank() == 1:
                os.kill(os.getpid(), 9)
            dist.all_reduce(total)
            log(attempt_done=attempt)

        if __name__ == "__main__":
            run_rank(main)
        """,
    )
    run = launch(job, ranks=2, warm=way, restarts=1, limit_s=LONG_S)
    assert run.ok, run
    assert run.by_rank("attempt_done") == {0: 1, 1: 1}
    assert {line.attempt for line in run.lines if line.rank == 1} == {0, 1}
    assert run.exit_codes == {0: 0, 1: 0}
    if way:
        assert [lane.attempt for lane in run.lanes()] == [1, 1]
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in run.command


def test_a_start_does_not_show_what_an_earlier_one_said(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import os
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            print("the first start", flush=True)
            os._exit(3)
        """,
    )
    run = launch(job, ranks=1, warm=True, restarts=1, limit_s=LONG_S)
    assert run.ok, run
    assert run.lines_of(0) == ["the first start"]
    assert [(lane.attempt, lane.last_line) for lane in run.lanes()] == [(1, "")]


# Arguments


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranks": 0}, {"ranks": -1}, {"ranks": True}, {"ranks": 2.0}, {"ranks": "2"},
        {"ranks": 129}, {"ranks": None}, {"restarts": -1}, {"restarts": True}, {"restarts": 1.5},
        {"limit_s": 0}, {"limit_s": -1}, {"limit_s": float("nan")}, {"limit_s": float("inf")},
        {"limit_s": "60"}, {"limit_s": True}, {"limit_s": None}, {"env": {"A": 1}},
        {"env": {"": "x"}}, {"env": {"A=B": "x"}}, {"env": {"A": "x\0"}}, {"env": {"A": "\ud800"}},
        pytest.param({"env": {"A": "x" * 131072}}, id="huge"), {"env": {"A B": "x"}},
        {"env": ["A"]}, {"env": "A=B"}, {"argv": "x"}, {"argv": ["\0"]}, {"wait": "no"},
        {"wait": 0}, {"bucket_mb": "x"}, {"bucketmb": 1}, {"shuffle": 1},
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    monkeypatch.setenv("DDP_COURSE_RUNS", str(tmp_path / "runs"))
    job = script(tmp_path, KNOBS_JOB)
    with pytest.raises(BadArgument, match="What to do"):
        launch(job, **wrong)
    assert not (tmp_path / "runs").exists()
    assert launcher.live_runs() == []


@WARM_NOW_PLAIN_NIGHTLY
@pytest.mark.parametrize("ranks", [1, 8])
def test_any_number_of_ranks(tmp_path: Path, way: bool, ranks: int) -> None:
    job = script(tmp_path, "import os\nprint(os.environ['RANK'], os.environ['LOCAL_RANK'])")
    run = launch(job, ranks=ranks, warm=way, limit_s=LONG_S)
    assert run.ok
    assert [run.lines_of(rank, "stdout") for rank in range(ranks)] == [
        [f"{rank} {rank}"] for rank in range(ranks)
    ]


def test_sixty_four_ranks_fail_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_free_bytes", lambda: 1 << 40)
    job = script(tmp_path, "import os\nif os.environ['RANK'] == '9': raise SystemExit(9)")
    run = launch(job, ranks=64, limit_s=LONG_S)
    assert run.failure is not None
    assert (run.failure.rank, run.failure.exit_code) == (9, 9)
    assert launch(script(tmp_path, "pass"), ranks=64, limit_s=LONG_S).ok


def test_too_many_ranks_for_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_free_bytes", lambda: 1 << 30)
    with pytest.raises(BadArgument, match="at most 2 ranks"):
        launch("hello_ranks", ranks=3, warm=False)


# The world outside


def test_nothing_of_the_caller_s_world_leaks_in(
    tmp_path: Path, way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank variables of another torchrun, another `torchrun` on PATH, a port that is taken."""
    stray = {
        "RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "99", "LOCAL_WORLD_SIZE": "99",
        "MASTER_ADDR": "203.0.113.1", "MASTER_PORT": "1", "GROUP_RANK": "3", "ROLE_NAME": "x",
        "PET_NPROC_PER_NODE": "5", "PET_MASTER_PORT": "1", "PET_NNODES": "3",
        "TORCHELASTIC_RESTART_COUNT": "4", "TORCHELASTIC_RUN_ID": "other",
        "TORCHELASTIC_ERROR_FILE": "/nowhere/error.json", "TORCHELASTIC_USE_AGENT_STORE": "False",
        "DDP_COURSE_TRACE": "1", "DDP_COURSE_RUN": "/nowhere",
    }  # fmt: skip
    for name, value in stray.items():
        monkeypatch.setenv(name, value)
    fake = script(tmp_path / "bin", "#!/bin/sh\necho fake\nexit 5\n", "torchrun")
    for name in ("python", "python3"):
        (fake.parent / name).write_text(fake.read_text())
        (fake.parent / name).chmod(0o755)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MINE", "kept\nwith a newline")
    job = script(
        tmp_path,
        """
        import json, os
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        print(json.dumps({**os.environ, "total": total.item()}))
        dist.destroy_process_group()
        os._exit(0)
        """,
    )
    with socket.socket() as held:
        try:
            held.bind(("127.0.0.1", 29500))
            held.listen()
        except OSError:
            pass  # somebody else holds it: as good
        run = launch(job, ranks=2, warm=way, limit_s=LONG_S, env={"GIVEN": "a 'b' ü"})
    assert run.ok, run
    for rank in range(2):
        env = json.loads(run.lines_of(rank, "stdout")[-1])
        assert env["total"] == 2.0
        assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == (str(rank), "2", "127.0.0.1")
        assert env["MASTER_PORT"] not in ("1", "29500")
        assert env["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert env["TORCHELASTIC_RUN_ID"] != "other"
        assert env["TORCHELASTIC_ERROR_FILE"].startswith(str(run.folder))
        assert (env["MINE"], env["GIVEN"]) == ("kept\nwith a newline", "a 'b' ü")
        assert "DDP_COURSE_TRACE" not in env
        assert env["DDP_COURSE_RUN"] == str(run.folder)
        assert "PET_NNODES" not in env


def test_launches_wait_their_turn_with_the_world_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = script(tmp_path, "import os, time\nprint(os.environ['TURN'], os.getcwd(), time.time())")
    queued = []
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        monkeypatch.setenv("TURN", str(turn))
        monkeypatch.chdir(folder)
        queued.append(start(job, 1, True))
    assert [run.state for run in queued[1:]] == ["queued"] * 2
    ends = [line.split() for run in queued for line in run.lines_of(0, "stdout")]
    assert [(turn, cwd) for turn, cwd, _ in ends] == [
        (str(t), str(tmp_path / str(t))) for t in range(3)
    ]
    assert ends == sorted(ends, key=lambda end: float(end[2]))


@WARM_NOW_PLAIN_NIGHTLY
def test_two_processes_at_once_share_nothing(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os, time
        from pathlib import Path
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        here = Path(os.environ["MEETING"])
        (here / (os.environ["WHO"] + os.environ["RANK"])).touch()
        while len(list(here.iterdir())) < 4:  # both launches are alive together
            time.sleep(0.01)
        dist.barrier()
        print(os.environ["MASTER_PORT"], flush=True)
        dist.destroy_process_group()
        os._exit(0)
        """,
    )
    (tmp_path / "meeting").mkdir()
    text = f"""
        from ddp_course import launch
        run = launch({str(job)!r}, ranks=2, warm={way}, limit_s={LONG_S})
        print("RESULT", run.ok, run.folder, *run.lines_of(0, "stdout")[-1].split())
        """
    results = []
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    common = {"MEETING": str(tmp_path / "meeting"), "TMPDIR": str(tmp_path / "meeting" / "..")}
    with (
        caller(folders[0], text, {**common, "WHO": "one"}) as first,
        caller(folders[1], text, {**common, "WHO": "two"}) as second,
    ):
        for process, folder in zip((first, second), folders, strict=True):
            assert process.wait(LONG_S) == 0, (folder / "caller.log").read_text()
            said = (folder / "caller.log").read_text().splitlines()
            results.append(next(line for line in said if line.startswith("RESULT")).split())
    (_, ok, folder_1, port_1), (_, ok_2, folder_2, port_2) = results
    assert ok == ok_2 == "True"
    assert folder_1 != folder_2
    assert port_1 != port_2


@pytest.mark.parametrize("failing", ["mkdir", "write_text"])
def test_a_full_disk_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.Path, failing, full)
    with pytest.raises(CannotRun, match="No space left on device"):
        launch("hello_ranks")


@WARM_NOW_PLAIN_NIGHTLY
def test_a_disk_that_fills_during_the_run_ends_it(tmp_path: Path, way: bool) -> None:
    """A limit on the size of any file stands for the disk: writes beyond it fail."""
    job = script(
        tmp_path,
        """
        import sys, time
        print("alive", flush=True)
        for number in range(100_000):
            print("x" * 100, flush=True)
        """,
    )
    text = f"""
        import resource
        from ddp_course import launch
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        run = launch({str(job)!r}, ranks=2, warm={way}, limit_s={LONG_S}, wait=False)
        run.wait()
        print("RESULT", run.ended, run.failure.what, len(run.lines))
        """
    with caller(tmp_path, text) as process:
        assert process.wait(LONG_S) == 0, (tmp_path / "caller.log").read_text()
    said = (tmp_path / "caller.log").read_text()
    assert "RESULT failed" in said
    assert "File too large" in said


@WARM_NOW_PLAIN_NIGHTLY
def test_a_result_that_cannot_be_written_is_a_result_all_the_same(
    tmp_path: Path, way: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = script(
        tmp_path, "import os, shutil\nshutil.rmtree(os.environ['DDP_COURSE_RUN'])\nos._exit(3)"
    )
    run = launch(job, ranks=1, warm=way, limit_s=LONG_S)
    assert run.failure is not None
    assert "cannot be recorded: No such file" in run.failure.what
    assert "cannot be recorded" in capsys.readouterr().err


@WARM_NOW_PLAIN_NIGHTLY
def test_a_defect_of_the_launcher_ends_the_run(
    tmp_path: Path, way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = script(tmp_path, "pass")
    monkeypatch.setattr(live.Launch, "_note", lambda *_: 1 / 0)
    run = start(job, 1, way).wait()
    assert run.ended == "failed"
    assert run.failure is not None
    assert "ZeroDivisionError" in run.failure.what
    monkeypatch.undo()
    monkeypatch.setattr(live.output, "exit_codes", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in str(start(job, 1, way).wait().failure)
    monkeypatch.undo()
    assert start(job, 1, way).ok, "and the next one runs"


@WARM_NOW_PLAIN_NIGHTLY
def test_a_rank_that_reports_nonsense_is_only_not_understood(tmp_path: Path, way: bool) -> None:
    job = script(
        tmp_path,
        """
        import os
        from ddp_course.rank.report import log
        log(step=10**400, loss=10**400)
        log(step="three", loss="low", text="\\ud800 <script>", rank=99, event=5)
        with open(os.path.join(os.environ["DDP_COURSE_RUN"], "events-0.jsonl"), "ab") as file:
            file.write(b"not json\\n[1]\\n{}\\n" + b"[" * 100_000 + b"\\n\\xff\\xff\\n")
        log(step=7, loss=float("nan"))
        """,
    )
    run = launch(job, ranks=1, warm=way, limit_s=LONG_S)
    assert run.ok
    assert run.lanes()[0].step == 7
    assert {event["event"] for event in run.events} == {"log"}
    assert {event["rank"] for event in run.events} == {0}
    assert run._repr_html_()


@WARM_NOW_PLAIN_NIGHTLY
def test_a_path_that_is_no_unicode(
    tmp_path: Path, way: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    job = script(folder, "print('ok', __file__.encode(errors='surrogateescape')[-12:])")
    run = launch(job, ranks=1, warm=way, limit_s=LONG_S)
    assert run.ok, run
    assert run.lines_of(0, "stdout") == [f"ok {os.fsencode(job)[-12:]!r}"]
    assert "$ cd" in capsys.readouterr().out


@WARM_NOW_PLAIN_NIGHTLY
def test_many_open_files_are_no_limit(tmp_path: Path, way: bool) -> None:
    """select(2) knows 1024 descriptors; a notebook may hold more."""
    job = script(tmp_path, "print('ok')")
    text = f"""
        import os, resource
        from ddp_course import launch
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        held = [os.dup(0) for _ in range(min(hard, 4096) - 1500)]
        assert len(held) > 1024, hard
        print("RESULT", launch({str(job)!r}, ranks=2, warm={way}, limit_s={LONG_S}).ok)
        """
    with caller(tmp_path, text) as process:
        process.wait(LONG_S)
    assert "RESULT True" in (tmp_path / "caller.log").read_text()


@pytest.mark.nightly
def test_right_scripts_end_with_0_on_a_busy_machine(tmp_path: Path) -> None:
    """Python may abort at exit under load (see report.run_rank): not with run_rank."""
    job = script(
        tmp_path,
        """
        import sys
        sys.setswitchinterval(10)  # Gloo's threads starve for the interpreter's lock
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from ddp_course.rank.report import run_rank

        def main():
            dist.init_process_group("gloo")
            model = DistributedDataParallel(torch.nn.Linear(8, 8))
            for _ in range(3):
                model(torch.ones(4, 8)).sum().backward()
            dist.destroy_process_group()

        if __name__ == "__main__":
            run_rank(main)
        """,
    )
    spin = [sys.executable, "-c", "import os\nwhile os.getppid() != 1: pass"]
    load = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        for _ in range(3):
            run = launch(job, ranks=2, warm=False, limit_s=LONG_S)
            assert run.exit_codes == {0: 0, 1: 0}, run
    finally:
        for process in load:
            process.kill()
            process.wait()


# Cells that are jobs


def test_a_cell_s_job_is_not_changed_under_a_run_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook.save_job("mine_first", "print('first')\n")
    earlier = start(script(tmp_path, "print('before')"), 1, True)
    run = start(Path("mine_first.py"), 1, True)
    notebook.save_job("mine_first", "print('second')\n")
    assert run.lines_of(0, "stdout") == ["first"]
    assert earlier.ok
    assert launch("mine_first", ranks=1).lines_of(0, "stdout") == ["second"]
    assert catalogue.cell_jobs() == ["mine_first"]


def test_an_interrupt_stops_a_blocking_launch(tmp_path: Path, way: bool) -> None:
    job = script(tmp_path, "import time\nprint('alive', flush=True)\ntime.sleep(60)")

    def interrupt() -> None:
        until(lambda: launcher.live_runs() and shows(launcher.live_runs()[0], "alive"), "a line")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        launch(job, ranks=2, warm=way, limit_s=LONG_S)
    thread.join()
    assert launcher.live_runs() == []
