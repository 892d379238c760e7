"""Lesson 06: its jobs against an oracle, with ranks that are killed and nodes that come and go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from slurm import free_ports
from test_exercises import SURVIVES, answer

from ddp_course import attempts, launch
from ddp_course.errors import NoEvidence
from ddp_course.launcher import catalogue
from ddp_course.rank.place import my_place
from ddp_course.run.reader import Reader
from ddp_course.run.run import Run

ROOT = Path(__file__).resolve().parent.parent
STEPS = 20


@cache
def one_process_in_float64(steps: int) -> npt.NDArray[Any]:
    """The training of survive_kill and follow_nodes: all data, double precision, SGD by hand."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    images = torch.randn(480, 1, 8, 8)
    labels = (images.flatten(1) @ torch.randn(64, 10)).argmax(1)
    first, second = nn.Linear(64, 16), nn.Linear(16, 10)
    parameters = [*first.parameters(), *second.parameters()]
    parameters = [p.detach().double().requires_grad_() for p in parameters]
    velocities = [torch.zeros_like(p) for p in parameters]
    for step in range(steps):
        rows = slice(step % 10 * 48, step % 10 * 48 + 48)
        x, y = images[rows].flatten(1).double(), labels[rows]
        hidden = (x @ parameters[0].T + parameters[1]).clamp(min=0)
        logits = hidden @ parameters[2].T + parameters[3]
        loss = (logits.logsumexp(1) - logits.gather(1, y[:, None])[:, 0]).mean()
        gradients = torch.autograd.grad(loss, parameters)
        velocities = [0.9 * v + g for v, g in zip(velocities, gradients, strict=True)]
        parameters = [
            (p - 0.1 * v).detach().requires_grad_()
            for p, v in zip(parameters, velocities, strict=True)
        ]
    array: npt.NDArray[Any] = torch.cat([p.detach().flatten() for p in parameters]).numpy()
    return array


def ends_as_one_process_does(run: Run, steps: int = STEPS) -> None:
    assert run.ok, str(run)
    for rank in range(run.ranks):
        np.testing.assert_array_equal(run.value("weights", rank), run.value("weights"))
    np.testing.assert_allclose(run.value("weights"), one_process_in_float64(steps), atol=1e-5)


def killed(rank: int, *, after: int, warm: bool = True, **knobs: Any) -> Run:
    """A run of survive_kill, with this rank killed once every rank has taken `after` steps."""
    run = launch("survive_kill", restarts=1, limit_s=120, warm=warm, wait=False, **knobs)
    run.wait_for_step(after).kill(rank)
    return run.wait()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("job", ["survive_kill", "follow_nodes"])
def test_training_undisturbed(job: str, ranks: int) -> None:
    run = launch(job, ranks=ranks)
    ends_as_one_process_does(run)
    assert run.values("step") == list(range(1, STEPS + 1))
    assert not (run.folder / "checkpoint.pt").exists(), "the next training begins at step 0"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_kill_changes_nothing(ranks: int) -> None:
    run = killed(ranks - 1, ranks=ranks, after=7, pause_ms=30.0)
    ends_as_one_process_does(run)
    told = attempts(run)
    assert (told.restarts, told.failed_first) == (1, ranks - 1)
    assert told.rows[0].exit_code == -9
    assert told.recovery_s is not None and told.recovery_s > 0
    begun = run.values("resumed_at")
    assert begun[0] == 0 and 7 <= begun[1] <= STEPS
    assert told.repeated <= 1
    missing = set(range(1, STEPS + 1)) - set(run.values("step"))
    assert missing <= {begun[1]}, "rank 0 may be stopped between saving a step and reporting it"
    for text in (str(told), told._repr_html_()):
        assert f"rank {ranks - 1}, killed by SIGKILL (-9)" in text
        assert f"{told.recovery_s:.2f} s" in text


def test_two_ranks_resume_bit_for_bit() -> None:
    run = killed(1, ranks=2, after=7, pause_ms=30.0)
    assert run.value("weights") == launch("survive_kill", ranks=2).value("weights")


def test_a_checkpoint_now_and_then_costs_steps() -> None:
    run = killed(1, ranks=2, after=8, pause_ms=50.0, save_every=5)
    ends_as_one_process_does(run)
    begun = run.values("resumed_at")[1]
    assert begun % 5 == 0
    last = attempts(run).rows[0].last_step
    assert last is not None and attempts(run).repeated == max(0, last - begun)


def test_a_plain_torchrun_tells_the_same_story() -> None:
    run = killed(1, ranks=2, after=7, pause_ms=50.0, warm=False)
    ends_as_one_process_does(run)
    assert attempts(run).restarts == 1
    assert attempts(run).rows[0].exit_code in (-9, 1), "torchrun may call a victim the first"
    assert Run.open(run.folder).result["deaths"] == run.result["deaths"]


def test_without_a_checkpoint_a_restart_begins_at_zero() -> None:
    run = launch("train_ddp", ranks=2, restarts=1, epochs=200, limit_s=120, wait=False)
    run.wait_for_step(7).kill(1)
    second = attempts(run.wait()).rows[1]
    assert second.first_step == 0


def test_attempts_of_a_run_that_reported_nothing(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text("print('nothing to report')\n")
    with pytest.raises(NoEvidence):
        attempts(launch(tmp_path / "mute.py", ranks=1))


def test_attempts_of_one_start() -> None:
    told = attempts(launch("survive_kill", ranks=1))
    assert (told.restarts, told.failed_first, told.recovery_s, told.repeated) == (0, None, None, 0)
    assert "its end" in str(told)
    assert told.message == "1 start, 0 steps done twice"
    assert replace(told, repeated=1).message == "1 start, 1 step done twice"


def test_two_nodes_are_one_job() -> None:
    run = launch("read_environment", ranks=2, nodes=2)
    assert run.ok, str(run)
    assert run.ranks == 4 and run.exit_codes == dict.fromkeys(range(4), 0)
    assert run.by_rank("group_rank") == {0: "0", 1: "0", 2: "1", 3: "1"}
    assert run.by_rank("local_rank") == {0: "0", 1: "1", 2: "0", 3: "1"}
    assert set(run.by_rank("world_size").values()) == {"4"}
    assert run.value("ranks_on_node") == [2, 2]
    for rank in range(4):
        assert f"RANK={rank}" in run.lines_of(rank), "each line is kept with its rank"
    again = Run.open(run.folder)
    assert again.lines == run.lines and again.nodes == 2


def test_the_command_of_two_nodes_runs_in_a_shell(tmp_path: Path) -> None:
    command = launch("read_environment", ranks=1, nodes=2, restarts=1).command
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "DDP_COURSE_RUN": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    record = Reader(tmp_path)
    record.poll(0.0, last=True)
    told = {event["rank"]: event["told"] for event in record.events if "told" in event}
    assert {told[rank]["GROUP_RANK"] for rank in (0, 1)} == {"0", "1"}
    assert told[0]["WORLD_SIZE"] == "2"


def test_the_static_command_of_the_lesson_runs() -> None:
    lesson = (ROOT / "notebooks" / "src" / "06_torchrun.py").read_text()
    found = re.search(r"`torchrun (.*--node-rank=0.* )script.py`", lesson)
    assert found, "the lesson gives it"
    (port,) = free_ports(1)
    words = found[1].replace("HOST", "127.0.0.1").replace("29500", str(port)).split()
    words = [word.replace("-per-node=4", "-per-node=1") for word in words]
    command = [sys.executable, "-m", "torch.distributed.run"]
    script = str(catalogue.find_job("read_environment"))
    nodes = [
        subprocess.Popen(
            [*command, *(w.replace("rank=0", f"rank={node}") for w in words), script],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in (0, 1)
    ]
    try:
        for node, process in enumerate(nodes):
            said, _ = process.communicate(timeout=200)
            assert process.returncode == 0
            assert f"GROUP_RANK={node}\n" in said and "WORLD_SIZE=2\n" in said
    finally:
        for process in nodes:
            process.kill()


def test_a_node_of_this_machine_takes_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pretended GPUs; NCCL refuses two ranks on one."""
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    env = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert str(my_place().device) == "cuda:1"
    monkeypatch.setenv("DDP_COURSE_NODES_HERE", "2")
    assert str(my_place().device) == "cuda:3"
    monkeypatch.setenv("DDP_COURSE_NODES_HERE", "3")
    assert str(my_place().device) == "cpu", "six ranks have no GPU each"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_torchrun_tells_on_one_node(ranks: int) -> None:
    run = launch("read_environment", ranks=ranks)
    for rank, told in run.by_rank("told").items():
        assert told["RANK"] == told["LOCAL_RANK"] == str(rank)
        assert told["WORLD_SIZE"] == told["LOCAL_WORLD_SIZE"] == str(ranks)
        assert (told["GROUP_RANK"], told["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert told["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert run.value("ranks_on_node") == [ranks]


@pytest.mark.parametrize(
    "warm", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["warm", "plain"]
)
def test_a_node_leaves_and_comes_back(warm: bool) -> None:
    run = launch(
        "follow_nodes", ranks=1, nodes=2, restarts=3, until_back=True, steps=100_000,
        pause_ms=30.0, warm=warm, limit_s=240, wait=False,
    ).wait_for_step(5)  # fmt: skip
    run.lose_node()
    run.wait_for_step(run.lanes()[0].step + 5).return_node()
    run.wait()
    ends_as_one_process_does(run, run.value("steps"))
    worlds = run.value("worlds")
    assert worlds[-3:] == [2, 1, 2] or (not warm and worlds[-1] == 2 and 1 in worlds), worlds
    assert run.exit_codes == {0: 0, 1: 0}


def test_a_node_that_is_lost_without_restarts_ends_the_job() -> None:
    run = launch(
        "hello_ranks", ranks=1, nodes=2, steps=10_000, limit_s=30, wait=False
    ).wait_for_step(3)
    run.lose_node()
    assert not run.ok
    assert run.failure is not None and run.failure.rank == 1
    assert "killed by you" in run.failure.what


def test_one_node_cannot_be_lost() -> None:
    run = launch("hello_ranks", ranks=1)
    with pytest.raises(ValueError, match="nodes=2"):
        run.lose_node()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_fixed_port_is_taken(ranks: int) -> None:
    run = launch("wrong_fixed_port", ranks=ranks)
    assert (run.value("fixed"), run.value("free")) == (0, ranks)
    assert all("EADDRINUSE" in text for text in run.by_rank("answer").values())


@pytest.mark.parametrize(
    ("knobs", "shared", "elsewhere"),
    [
        ({}, 0, 0),  # block: machine 0 has ranks 0 1, machine 1 has 2 3
        ({"placement": "cyclic"}, 4, 2),  # 0 2 | 1 3: even ranks take cuda:0, odd ones cuda:1
        ({"gpus": 4}, 0, 2),  # ranks 2 and 3 take cuda:2 and cuda:3
        ({"gpus": 3}, 0, 2),  # … cuda:2 and cuda:0
        ({"ranks_per_machine": 4, "gpus": 4}, 0, 0),
    ],
)
def test_modulo_on_four_ranks(knobs: dict[str, Any], shared: int, elsewhere: int) -> None:
    run = launch("wrong_modulo_index", ranks=4, **knobs)
    assert set(run.by_rank("shared").values()) == {shared}
    assert set(run.by_rank("elsewhere").values()) == {elsewhere}


@pytest.mark.parametrize("ranks", [1, 2])
def test_modulo_on_one_machine_is_right(ranks: int) -> None:
    run = launch("wrong_modulo_index", ranks=ranks, placement="cyclic")
    assert (run.value("shared"), run.value("elsewhere")) == (0, 0)


@pytest.mark.parametrize(
    ("keep", "said_by_a_rank", "said_by_torchrun"),
    [("all", True, True), ("rank_0", False, True), ("rank_0_no_file", False, False)],
)
def test_what_is_left_of_the_cause(keep: str, said_by_a_rank: bool, said_by_torchrun: bool) -> None:
    run = launch("wrong_output_kept", ranks=2, keep=keep)
    assert not run.ok and run.failure is not None and run.failure.rank == 1
    ranks = [line.text for line in run.lines if line.rank is not None]
    assert any("4711" in text for text in ranks) is said_by_a_rank
    assert any("4711" in text for text in run.lines_of(None)) is said_by_torchrun
    files = sorted(run.folder.rglob("error.json"))
    assert bool(files) is said_by_torchrun
    if files:
        written = [json.loads(file.read_text())["message"]["message"] for file in files]
        assert any("ValueError: sample 4711 is broken" in text for text in written)


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_broken_sample_is_the_last_ranks(ranks: int) -> None:
    run = launch("wrong_output_kept", ranks=ranks)
    assert run.failure is not None and run.failure.rank == ranks - 1
    assert run.values("step") == [0, 1, 2]


def test_half_a_checkpoint_is_an_error_with_its_own_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = SURVIVES.replace("draft = f", "draft = path  # f").replace(
        "os.replace(draft, path)", ""
    )
    verdict = answer(tmp_path, monkeypatch, "ex06", lines)
    assert verdict.status == "error", str(verdict)
    assert "half a file" in str(verdict)
