"""The batch script that the course writes, read by bash and run by a real SLURM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import needs
from launching import until
from slurm import Cluster, cluster  # noqa: F401 - a fixture

from ddp_course import slurm_script
from ddp_course.errors import BadArgument
from ddp_course.launcher.launch import launch
from ddp_course.run.reader import Reader

SLURM_PATIENCE_S = 240.0  # two torchruns that import torch, on a busy machine


def values(folder: Path, name: str) -> dict[int, object]:
    """{rank: the last value}, of what the ranks of a batch job reported."""
    record = Reader(folder)
    record.poll(0.0, last=True)
    return {event["rank"]: event[name] for event in record.events if name in event}


def test_the_script_is_bash_and_says_what_it_was_asked() -> None:
    text = slurm_script("survive_kill", nodes=3, ranks=4, gpus=True, restarts=2, pause_ms=5.0)
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for wanted in (
        "#SBATCH --nodes=3\n",
        "#SBATCH --ntasks-per-node=1\n",
        "#SBATCH --gpus-per-node=4\n",
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n',
        "--nproc-per-node=4 --max-restarts=2 ",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "survive_kill.py --pause-ms 5.0\n",
    ):
        assert wanted in text
    plain = slurm_script("hello_ranks")
    assert "gpus" not in plain and "SHARE_RDZV" not in plain and "max-restarts" not in plain


@pytest.mark.parametrize(
    "wrong", [{"nodes": 0}, {"ranks": True}, {"restarts": -1}, {"minutes": 1.5}, {"stepps": 3}]
)
def test_what_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadArgument):
        slurm_script("hello_ranks", **wrong)  # type: ignore[arg-type]


def test_it_saves_itself(tmp_path: Path) -> None:
    text = slurm_script("hello_ranks")
    assert text.save(tmp_path / "job.sbatch").read_text() == text == repr(text)


@needs("slurm")
def test_it_runs_on_two_nodes_and_trains_as_one_process_does(
    cluster: Cluster,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where the job runs, and leaves torchrun's logs
    script = slurm_script("survive_kill", nodes=2, ranks=1, restarts=1).save(tmp_path / "a.sbatch")
    job = cluster.submit(script, f"--export=ALL,DDP_COURSE_RUN={tmp_path}")
    over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
    until(lambda: cluster.state(job) in over, "the job's end", SLURM_PATIENCE_S)
    said = (cluster.folder / f"survive_kill-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", said
    assert values(tmp_path, "world_size") == {0: 2, 1: 2}
    assert sorted(map(str, values(tmp_path, "node").values())) == ["0", "1"]
    alone = launch("survive_kill", ranks=1)
    for weights in values(tmp_path, "weights").values():
        np.testing.assert_allclose(weights, alone.value("weights"), atol=1e-5)
    assert "rank 1 of 2" in said, "--tee shows every rank's output"


@needs("slurm")
def test_scancel_leaves_no_orphan(
    cluster: Cluster,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    script = slurm_script("hello_ranks", nodes=2, ranks=1, steps=100_000)
    job = cluster.submit(
        script.save(tmp_path / "b.sbatch"), f"--export=ALL,DDP_COURSE_RUN={tmp_path}"
    )
    until(lambda: len(values(tmp_path, "total")) == 2, "both ranks' first step", SLURM_PATIENCE_S)
    assert cluster.processes()
    cluster.ask("scancel", job)
    until(lambda: not cluster.processes(), "the end of every process of the job")
    until(lambda: cluster.state(job) == "CANCELLED", "SLURM's word that it was cancelled")
