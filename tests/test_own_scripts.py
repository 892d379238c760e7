"""`python -m ddp_course run` for a script of one's own: hangs, signals, modules, standard input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from launching import script, until

from ddp_course import launch, timeline
from ddp_course.observe.recorder.tracing import KEEP_STEPS

COURSE = [sys.executable, "-u", "-m", "ddp_course"]
HANGS = """
    import os, time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    print("ready", flush=True)
    if dist.get_rank() == 1:
        time.sleep(600)  # late for the collective
    dist.all_reduce(torch.ones(1))
"""

UNMARKED = """
    import os, torch, torch.distributed as dist
    from torch.utils.data import DataLoader

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(torch.ones(40, 4), batch_size=5, num_workers=1):
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        torch.ones(3) + 1
    assert any(event.key == "aten::add" for event in own.key_averages())
    dist.destroy_process_group()
"""


def ran(*words: str, given: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    asked = [*COURSE, "run", *words]
    return subprocess.run(
        asked, input=given, capture_output=True, text=True, timeout=200, check=False, **options
    )


@pytest.mark.timeout(280)
def test_a_hang_is_told_while_it_hangs_here_and_in_another_shell(tmp_path: Path) -> None:
    """Who is late and where; SIGTERM then ends all of it, with what is known so far."""
    job = script(tmp_path, HANGS, "hangs.py")
    environment = {**os.environ, "DDP_COURSE_RUNS": str(tmp_path / "runs")}
    said: list[str] = []
    with subprocess.Popen(
        [*COURSE, "run", str(job), "--ranks", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    ) as shell:  # fmt: skip
        try:
            assert shell.stdout is not None
            for line in shell.stdout:
                said.append(line)
                if "still running]" in line:
                    break
            assert "ank 1" in said[-1] and "hangs.py:9" in said[-1], said
            family = psutil.Process(shell.pid).children(recursive=True)
            asked = subprocess.run(
                [*COURSE, "diagnose"], env=environment, capture_output=True, text=True, timeout=60
            )
            assert asked.returncode == 1 and "ank 1" in asked.stdout, asked.stdout + asked.stderr
            shell.send_signal(signal.SIGTERM)
            rest = shell.stdout.read()
        finally:
            shell.kill()
    assert "So far:" in rest and "ank 1" in rest, rest
    assert shell.returncode == 128 + signal.SIGTERM
    until(lambda: not any(process.is_running() for process in family), "the end of all ranks")


def test_a_module_of_a_package_runs_with_its_relative_imports(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data.py").write_text("SIZE = 42\n")
    (package / "train.py").write_text(
        "import sys\nfrom .data import SIZE\nprint('size', SIZE, sys.argv[1:])\n"
    )
    for more in ([], ["--cold"]):
        run = ran("-m", "package.train", *more, "--", "--lr", "0.1", cwd=tmp_path)
        assert run.stdout.count("size 42 ['--lr', '0.1']") == 2, run.stdout + run.stderr


def test_a_rank_reads_what_is_piped_in(tmp_path: Path) -> None:
    job = script(tmp_path, "import sys\nprint('read', sys.stdin.readline())\n", "reads.py")
    assert "read hello" in ran(str(job), "--ranks", "1", given="hello\n").stdout


def test_a_file_in_the_temporary_folder_is_found_by_the_next_run(tmp_path: Path) -> None:
    text = """
        import pathlib, tempfile
        path = pathlib.Path(tempfile.gettempdir()) / "checkpoint.txt"
        print("resumed" if path.exists() else "new")
        path.write_text("done")
    """
    job, environment = script(tmp_path, text, "resumes.py"), {**os.environ, "TMPDIR": str(tmp_path)}
    assert "new" in ran(str(job), "--ranks", "1", env=environment).stdout
    assert "resumed" in ran(str(job), "--ranks", "1", env=environment).stdout


def test_a_script_that_makes_progress_is_not_cut(tmp_path: Path) -> None:
    text = """
        import sys, time
        for step in range(12):
            print("step", step, flush=True)
            time.sleep(float(sys.argv[1]))
    """
    job = script(tmp_path, text, "trains.py")
    assert ran(str(job), "--ranks", "1", "--limit", "4", "--", "0.6").returncode == 0
    cut = ran(str(job), "--ranks", "1", "--limit", "4", "--", "60")
    assert cut.returncode == 1 and "4 s" in cut.stdout, cut.stdout


@pytest.mark.timeout(280)
@pytest.mark.parametrize(("warm", "ranks"), [(True, 2), (False, 1)])
def test_trace_alone_gives_a_timeline(tmp_path: Path, warm: bool, ranks: int) -> None:
    """A bounded number of steps, also where the script has a profiler and workers of its own."""
    job = script(tmp_path, UNMARKED)
    run = launch(str(job), ranks=ranks, warm=warm, trace=True, limit_s=240).wait()
    assert run.ok, str(run)
    found = timeline(run)
    assert found.steps == KEEP_STEPS
    for rank in found.ranks:
        assert [span.name for span in rank.spans] == ["forward", "backward", "optimizer"]
        assert len(rank.collectives) == 1
    assert "A step ends with the optimizer's. The first 5 steps are traced" in str(found)
    assert "USDT" not in str(run)
