"""The command line: exit codes, and errors without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    monkeypatch.setattr(machine, "doctor", lambda: report)
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


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "doctor", interrupted)
    assert main(["doctor"]) == 130


def test_run_launches_a_job_and_passes_its_verdict_on(tmp_path: Path) -> None:
    job = tmp_path / "leave.py"
    job.write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--code", type=int, default=0)\n'
        "raise SystemExit(parser.parse_args().code)\n"
    )
    command = [sys.executable, "-m", "ddp_course", "run", str(job), "--ranks", "1"]
    for flags, code in (([], 0), (["--", "--code", "3"], 1), (["--", "--coed", "3"], 2)):
        ended = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
    assert "--code" in ended.stderr or "code" in ended.stderr, "the right name is given"
