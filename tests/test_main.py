"""The command line: exit codes, and errors without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import family, hear_signals, lives, script, until

from ddp_course import machine
from ddp_course.__main__ import main
from ddp_course.commands.running import knobs_of
from ddp_course.errors import BadArgument
from ddp_course.machine import Report, Row


def test_flags_become_knobs() -> None:
    flags = ["--bucket-mb", "1.5", "--steps=20", "--name", "x", "--lr", "-0.1", "--shuffle"]
    assert knobs_of(flags) == {
        "bucket_mb": 1.5,
        "steps": 20,
        "name": "x",
        "lr": -0.1,
        "shuffle": True,
    }
    assert knobs_of([]) == {}


def test_a_value_without_its_flag_is_refused() -> None:
    with pytest.raises(BadArgument, match="--bucket-mb 1"):
        knobs_of(["20"])


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_doctor_exits_0_only_if_the_course_can_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: machine.Status,
    code: int,
) -> None:
    report = Report((Row("torch", "2.14.1", status, "do this"),), "proves little")
    monkeypatch.setattr(machine, "doctor", lambda **_: report)
    assert main(["doctor"]) == code
    assert str(report) in capsys.readouterr().out


def test_prepare_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "digits"]) == 0
    assert "digits is ready in " in capsys.readouterr().out


def test_an_error_is_its_message_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "minst"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("There is no data set 'minst'.")
    assert "Traceback" not in said


def test_only_run_takes_flags_of_a_job() -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--", "--steps", "3"])
    assert left.value.code == 2


@pytest.mark.parametrize("flag", ["--ranks=4", "--warm", "--argv=x", "--job=x", "--limit-s=3"])
def test_flags_of_run_after_the_dashes_are_sent_back(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "hello_ranks", "--", flag]) == 2
    assert "before --" in capsys.readouterr().err


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "doctor", interrupted)
    assert main(["doctor"]) == 130


LEARNERS = """
    import argparse, os, sys
    import torch, torch.distributed as dist
    from beside import double

    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-n", type=int)
    parser.add_argument("--data", dest="unused", default="no data set of ours")
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--no-shuffle", dest="shuffle", action=argparse.BooleanOptionalAction)
    knobs = parser.parse_args()
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    print("total", double(total.item()), knobs.data, knobs.n, os.environ["MINE"], flush=True)
    dist.destroy_process_group()
    if knobs.code and os.environ["RANK"] == "1":
        raise SystemExit(knobs.code)
    os._exit(0)
    """


@pytest.fixture
def learners(tmp_path: Path) -> Path:
    """A script as people have it: it knows nothing of the course, nor does what lies beside it."""
    folder = tmp_path / "my scripts, 訓練 & co"
    script(folder, "def double(x):\n    return 2 * x\n", "beside.py")
    return script(folder, LEARNERS, "my träin.py")


def shell(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddp_course", *map(str, words)],
        cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_run_takes_any_script_and_passes_its_verdict_on(learners: Path, tmp_path: Path) -> None:
    command = ["run", learners.name, "--limit", "200", "-e", "MINE=a=b c"]
    ended = shell(*command, "--", "-n", "5", "my data/", "--no-shuffle", cwd=learners.parent)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for rank in (0, 1):
        assert f"[rank {rank}] total 4.0 my data/ 5 a=b c" in ended.stdout
    assert "ok, 2 ranks" in ended.stdout
    assert ended.stderr == ""

    runs = tmp_path / "runs"
    ended = shell(*command, "--", "x", "--code=3", cwd=learners.parent, DDP_COURSE_RUNS=str(runs))
    assert ended.returncode == 1
    assert "exit code 3" in ended.stdout
    assert f"diagnose {runs}" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    for words in ([], list(runs.iterdir())):
        told = shell("diagnose", *words, cwd=tmp_path, DDP_COURSE_RUNS=str(runs))
        assert told.returncode == 1, told.stderr
        assert "rank 1" in told.stdout
        assert "exit code 3" in told.stdout


def test_nodes_restarts_and_a_plain_torchrun(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import os
        names = "RANK", "WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT"
        print(*map(os.environ.get, names), flush=True)
        raise SystemExit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
        """,
    )
    flags = ["--ranks", "1", "--nodes", "2", "--restarts", "1", "--limit", "200"]
    ended = shell("run", job, *flags, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {"[rank 0] 0 2 0 1", "[rank 1] 1 2 1 1"} <= set(ended.stdout.splitlines())
    ended = shell("run", job, "--cold", "--ranks=1", "--restarts=1", "--limit=200", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[rank 0] 0 1 0 1" in ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "no_such.py"], "is not there"),
        (["run", "helo_ranks"], "hello_ranks"),
        (["run", "hello_ranks", "--", "--stepps", "3"], "no knob 'stepps'"),
        (["run", "hello_ranks", "--ranks", "0"], "ranks cannot be 0"),
        (["run", "hello_ranks", "--limit", "nan"], "limit_s cannot be nan"),
        (["run", "hello_ranks", "-e", "NAME"], "-e NAME=VALUE"),
        (["run", "hello_ranks", "-e", "=x"], "env cannot be"),
        (["diagnose", "/"], "is not a run"),
        (["diagnose", ""], "is not a run"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_wrong_request_is_a_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_an_interrupt_ends_a_run_and_all_that_it_started(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import os, time
        print("alive", os.getpid(), flush=True)
        time.sleep(600)
        """,
    )
    command = [sys.executable, "-u", "-m", "ddp_course", "run", str(job), "--limit", "600"]
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=said, stderr=said, preexec_fn=hear_signals
        )
    try:
        until(lambda: (tmp_path / "said").read_text().count("alive") == 2, "both ranks", 200)
        below = family(process.pid)
        assert len(below) > 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, (tmp_path / "said").read_text()
        until(lambda: not any(map(lives, below)), "the end of all processes")
    finally:
        for one in family(process.pid):
            one.kill()
        process.kill()
        process.wait()
    text = (tmp_path / "said").read_text()
    assert "Traceback" not in text
    assert text.endswith("Interrupted.\n")


def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path) -> None:
    job = script(tmp_path, "print('x' * 1000 + chr(10) * 1000)")
    command = f"{sys.executable} -m ddp_course run {job} --limit 200 | head -n 1"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=240)
    assert ended.stdout.startswith("$ ")
    assert ended.stderr == ""


@pytest.mark.parametrize("words", [["grade", "--help"], ["export", "/nowhere", "csv"], ["report"]])
def test_the_instructors_commands_are_handed_over(words: list[str]) -> None:
    """Whatever is said and returned is what `python -m ddp_grading` says and returns."""
    ours, theirs = (
        subprocess.run([sys.executable, "-m", room, *words], capture_output=True, text=True)
        for room in ("ddp_course", "ddp_grading")
    )
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        theirs.returncode,
        theirs.stdout,
        theirs.stderr,
    )
    assert "python -m ddp_grading" in ours.stdout + ours.stderr


def test_the_course_imports_nothing_of_the_instructors_tool() -> None:
    """A learner's command works where ddp_grading is not there at all."""
    code = (
        "import sys; sys.modules['ddp_grading'] = None; from ddp_course.__main__ import main; "
        "sys.exit(main(['hint', 'ex00']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
