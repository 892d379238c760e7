"""copy_job: every job as a script that stands alone, and the ladder's last one run as such."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_course import launch
from ddp_course.errors import BadArgument, CourseError
from ddp_course.launcher import catalogue
from ddp_course.launcher.copying import copy_job


def test_no_copy_needs_the_course_or_a_name_that_is_not_there(tmp_path: Path) -> None:
    for job in catalogue.names():
        copied = copy_job(job, tmp_path / f"my_{job}.py")
        text = copied.read_text()
        ast.parse(text)
        code = text.split('"""', 2)[2]
        assert "ddp_course" not in code, job
        assert "run_rank" not in code and f"my_{job}.py" in text, job
        assert "ddp_course/jobs" not in text, job
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F,E9", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


def test_a_copy_ends_where_the_job_ends(tmp_path: Path) -> None:
    script = copy_job("train_digits", tmp_path / "mine.py")
    assert len(script.read_text().splitlines()) <= 90
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         script.name, "--epochs=2"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = re.findall(r"\[rank (\d)\] accuracy=([\d.]+) test", ended.stdout)
    run = launch("train_digits", ranks=2, epochs=2)
    assert dict(said) == {"0": str(run.value("accuracy")), "1": str(run.value("accuracy"))}
    assert launch(script, ranks=2, epochs=1).ok


@pytest.mark.parametrize("name", ["mine.txt", "queue.py", "torch.py", "here.py", "no/such/x.py"])
def test_a_name_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.py").write_text("mine\n")
    with pytest.raises((BadArgument, CourseError), match="What to do"):
        copy_job("train_digits", name)
    assert Path("here.py").read_text() == "mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["here.py"]


def test_an_edited_copy_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = copy_job("template", tmp_path / "mine.py")
    mine.write_text(mine.read_text() + "# my own line\n")
    assert copy_job("template", mine) == mine
    assert mine.read_text().endswith("# my own line\n")
    assert "stays as it is" in capsys.readouterr().out
    with pytest.raises(BadArgument, match="it stays"):
        copy_job("train_digits", mine)


def test_a_job_that_there_is_not() -> None:
    with pytest.raises(BadArgument, match="train_digits"):
        copy_job("train_digit", "mine.py")
