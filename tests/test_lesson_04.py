"""Lesson 04: a killed and resumed training against one that never was, to the last bit."""

from __future__ import annotations

import os
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddp_course import launch
from ddp_course.rank.report import my_folder
from ddp_course.run.run import Run

STEPS, EPOCH_STEPS = 58, 29
FINAL = ("weights", "moments", "learning_rate", "next_random")


@cache
def whole(ranks: int, dropout: float = 0.2) -> Run:
    """A run that nobody disturbs."""
    return launch("resume_training", ranks=ranks, dropout=dropout)


@cache
def killed(ranks: int, dropout: float = 0.2) -> Run:
    """A run of which one rank is killed in the first epoch, both chosen by chance."""
    return kill(launch("resume_training", ranks=ranks, dropout=dropout, pause_ms=50.0, wait=False))


def kill(run: Run, low: int = 6, high: int = 20) -> Run:
    step, victim = random.randint(low, high), random.randrange(run.ranks)
    run.wait_for_step(step).kill(victim)
    assert not run.ok and run.exit_codes[victim] == -9
    return run


def start_of(run: Run) -> int:
    return int(run.values("step")[0])


def assert_same_end(run: Run, oracle: Run) -> None:
    for name in FINAL:
        assert run.by_rank(name) == oracle.by_rank(name), name
    for rank in range(run.ranks):
        for name in ("loss", "samples"):
            assert run.values(name, rank) == oracle.values(name, rank)[start_of(run) :]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_killed_run_ends_as_if_it_had_not_been(ranks: int) -> None:
    resumed = launch("resume_training", ranks=ranks, resume=killed(ranks).folder)
    assert 5 <= start_of(resumed) < STEPS and start_of(resumed) % 5 == 0
    assert start_of(resumed) <= killed(ranks).values("step")[-1] + 1
    assert_same_end(resumed, whole(ranks))


def test_killed_again_and_again_while_it_saves_in_every_step() -> None:
    """Across the end of an epoch, too: the third kill comes in the second one."""
    run, settings = None, {"ranks": 2, "save_every": 1, "pause_ms": 30.0}
    for high in (12, 22, 40):
        resume = {"resume": run.folder} if run else {}
        run = kill(launch("resume_training", wait=False, **settings, **resume), high - 6, high)
        assert (run.folder / "checkpoint.pt").is_file()
    assert run is not None
    resumed = launch("resume_training", ranks=2, resume=run.folder)
    assert start_of(resumed) > EPOCH_STEPS
    assert_same_end(resumed, whole(2))


@pytest.mark.parametrize(("forget", "first"), [("random", 0), ("optimizer", 1), ("scheduler", 2)])
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_first_loss_that_tells(ranks: int, forget: str, first: int) -> None:
    run = launch("wrong_resume", ranks=ranks, resume=killed(ranks).folder, forget=forget)
    after = whole(ranks).values("loss")[start_of(run) :]
    assert np.not_equal(run.values("loss"), after).argmax() == first
    assert run.value("weights") != whole(ranks).value("weights")


def test_a_forgotten_position_repeats_what_was_done() -> None:
    run = launch("wrong_resume", ranks=2, resume=killed(2).folder, forget="position")
    done = start_of(run)
    for rank in range(2):
        before = whole(2).values("samples", rank)[:done]
        again = np.intersect1d(before, run.values("samples", rank)[:EPOCH_STEPS])
        assert again.size == 24 * done > 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_throw_away_backward_is_needed_from_three_ranks_on(ranks: int) -> None:
    run = launch("wrong_resume", ranks=ranks, resume=killed(ranks).folder, forget="buckets")
    gap = np.abs(np.subtract(run.value("weights"), whole(ranks).value("weights"))).max()
    assert bool(gap > 0) is (ranks > 2)
    assert gap < 1e-5


@cache
def one_process_in_float64() -> tuple[Any, list[Any]]:
    """The training without dropout, written again: final weights, and the batches it took."""
    import torch
    from torch import nn

    from ddp_course.rank.data import load

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).double()
    images, labels = load("digits", train=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    batches = []
    for step in range(STEPS):
        epoch, batch = divmod(step, EPOCH_STEPS)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        batches.append(order[48 * batch : 48 * batch + 48])
        optimizer.param_groups[0]["lr"] = 0.02 * (1 + np.cos(np.pi * step / STEPS)) / 2
        optimizer.zero_grad()
        x = images[batches[-1]].flatten(1).double()
        nn.functional.cross_entropy(model(x), labels[batches[-1]]).backward()
        optimizer.step()
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    return weights, [batch.tolist() for batch in batches]


@pytest.mark.parametrize(("before", "after"), [(4, 4), (4, 2), (4, 1), (1, 4)])
def test_another_world_size_goes_on_with_the_same_training(before: int, after: int) -> None:
    """Without dropout, so that one process can be the oracle."""
    run = launch("resume_training", ranks=after, resume=killed(before, 0.0).folder, dropout=0.0)
    weights, batches = one_process_in_float64()
    np.testing.assert_allclose(run.value("weights"), weights, atol=1e-4)
    done = start_of(run)
    for rank in range(after):
        assert run.values("samples", rank) == [batch[rank::after] for batch in batches[done:]]


def test_another_world_size_is_reproducible() -> None:
    twice = [launch("resume_training", ranks=2, resume=killed(4).folder) for _ in range(2)]
    for name in FINAL:
        assert twice[0].by_rank(name) == twice[1].by_rank(name)
    assert len(set(twice[0].by_rank("next_random").values())) == 2


def test_no_moment_of_an_atomic_save_loses_the_checkpoint() -> None:
    run = launch("interrupt_save", ranks=2, moments=32)
    assert run.values("broken") == [30, 0], "the threat is real, and contained"
    assert run.values("old") == [0, 31] and run.values("new") == [2, 1]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_pieces_are_cut_anew_for_another_world_size(ranks: int) -> None:
    saved = pieces_of_four()
    run = launch("reshard_checkpoint", ranks=ranks, resume=saved.folder)
    for name in ("weights", "moments"):
        assert set(map(str, run.by_rank(name).values())) == {str(saved.value(name))}
    assert sum(run.by_rank("piece").values()) == sum(saved.by_rank("piece").values()) == 1210
    assert any(saved.value("moments"))


@cache
def pieces_of_four() -> Run:
    return launch("reshard_checkpoint", ranks=4)


def test_a_jobs_folder_is_its_runs_or_one_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDP_COURSE_RUN", str(tmp_path / "run"))
    assert my_folder() == tmp_path / "run"
    monkeypatch.delenv("DDP_COURSE_RUN")
    monkeypatch.setenv("DDP_COURSE_RUNS", str(tmp_path / "all"))
    monkeypatch.setattr(sys, "argv", [os.path.join("somewhere", "my_job.py")])
    assert my_folder() == tmp_path / "all" / "my_job"
    assert my_folder().is_dir()
