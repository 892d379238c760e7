"""Lesson 03: uneven work against one process with all the data, in float64; and the hangs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_jobs import every, one_process_in_float64, ran, weights

from ddp_course.launcher.launch import launch
from ddp_course.run.run import Run

RANKS = pytest.mark.parametrize("ranks", [1, 2, 4])
Array = npt.NDArray[Any]


def hung(job: str, ranks: int, **knobs: Any) -> Run:
    """A run whose ranks gave up waiting, after 2 s."""
    run = ran(job, ranks, tuple({"timeout_s": 2.0, **knobs}.items()))
    assert not run.ok and run.ended == "failed", str(run)
    said = "\n".join(line.text for line in run.lines)
    assert "Timed out waiting 2000ms" in said
    return run


@cache
def uneven_in_float64(shares: int, divide_by: str) -> Array:
    """The training of `train_uneven`, written again: one process, double precision."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    images = torch.randn(480, 64)
    labels = (images @ torch.randn(64, 10)).argmax(1)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)).double()
    for step in range(6):
        present = [r for r in range(shares) if step < 6 - r]
        rows = [12 * (step * shares + r) + i for r in present for i in range(12)]
        logits = model(images[rows].double())
        losses = logits.logsumexp(1) - logits.gather(1, labels[rows, None])[:, 0]
        model.zero_grad()
        (losses.sum() / (12 * (shares if divide_by == "initial" else len(present)))).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


@RANKS
@pytest.mark.parametrize("divide_by", ["initial", "active"])
def test_join_ends_where_one_process_ends(divide_by: str, ranks: int) -> None:
    wanted = uneven_in_float64(ranks, divide_by)
    run = ran("train_uneven", ranks, (("join", divide_by),))
    assert run.ok, str(run)
    for rank in range(ranks):
        np.testing.assert_allclose(weights(run, rank), wanted, atol=1e-6)
        np.testing.assert_array_equal(weights(run, rank), weights(run))
        assert len(run.values("samples", rank)) == 6 - rank
    alone = ran("train_uneven_one_process", 1, (("divide_by", divide_by), ("shares", ranks)))
    np.testing.assert_allclose(weights(alone), wanted, atol=1e-6)


def test_the_two_divisors_are_two_trainings() -> None:
    for shares in (2, 4):
        gap = uneven_in_float64(shares, "initial") - uneven_in_float64(shares, "active")
        assert np.abs(gap).max() > 1e-3
    np.testing.assert_array_equal(uneven_in_float64(1, "initial"), uneven_in_float64(1, "active"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_join_the_others_wait_for_the_rank_that_is_done(ranks: int) -> None:
    run = hung("train_uneven", ranks)
    missing = f"all_reduce of step {7 - ranks}"
    assert run.by_rank("doing") == {
        **dict.fromkeys(range(ranks - 1), missing),
        ranks - 1: "barrier at the end",
    }


def test_one_rank_alone_has_nobody_to_wait_for() -> None:
    for job in ("train_uneven", "stop_together", "wrong_barrier", "wrong_evaluation"):
        assert ran(job, 1).ok


@RANKS
def test_the_weighted_sum_is_the_mean_and_the_mean_of_means_is_not(ranks: int) -> None:
    weighted = ran("weight_batches", ranks, (("loss", "weighted"),))
    means = ran("weight_batches", ranks, (("loss", "mean"),))
    for rank in range(ranks):
        np.testing.assert_allclose(weights(weighted, rank), one_process_in_float64(), atol=1e-5)
        np.testing.assert_array_equal(weights(means, rank), weights(means))
    gap = np.abs(weights(means) - one_process_in_float64()).max()
    assert bool(gap > 1e-2) is (ranks > 1)
    sizes = {1: [48], 2: [16, 32], 4: [4, 10, 14, 20]}[ranks]
    assert every(means, "samples") == every(weighted, "samples") == [[n] * 20 for n in sizes]


@cache
def stops_in_float64(shares: int) -> tuple[int, list[int], Array]:
    """When one process stops, when each share of the validation data would, and its weights."""
    import torch

    torch.manual_seed(0)
    inputs, rule = torch.randn(144, 32), torch.randn(32, 1)
    targets = (inputs @ rule + 4 * torch.randn(144, 1)).double()
    inputs = inputs.double()
    layer = torch.nn.Linear(32, 1)  # the same first weights
    weight, bias = layer.weight.detach().double().T, layer.bias.detach().double()
    losses, found = [], []
    for _ in range(100):
        residual = inputs[:48] @ weight + bias - targets[:48]
        weight = weight - 0.05 * 2 * inputs[:48].T @ residual / 48
        bias = bias - 0.05 * 2 * residual.mean(0)
        losses.append((inputs[48:] @ weight + bias - targets[48:]) ** 2)
        found.append(torch.cat([weight.flatten(), bias]).numpy())
    curves = torch.stack(losses)[..., 0].numpy()  # (step, sample)

    def stop(curve: Array) -> int:
        return int(np.argmax(curve[1:] > np.minimum.accumulate(curve)[:-1])) + 2

    whole = stop(curves.mean(1))
    return whole, [stop(curves[:, r::shares].mean(1)) for r in range(shares)], found[whole - 1]


@RANKS
def test_all_stop_in_one_step(ranks: int) -> None:
    whole, each, wanted = stops_in_float64(ranks)
    mean = ran("stop_together", ranks, (("decide", "mean"),))
    flag = ran("stop_together", ranks, (("decide", "any"),))
    assert mean.by_rank("stopped_at") == dict.fromkeys(range(ranks), whole)
    assert flag.by_rank("stopped_at") == dict.fromkeys(range(ranks), min(each))
    np.testing.assert_allclose(weights(mean), wanted, atol=1e-5)
    assert (min(each) < whole) is (ranks > 1)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_stops_alone_leaves_the_others_waiting(ranks: int) -> None:
    _, each, _ = stops_in_float64(ranks)
    run = hung("stop_together", ranks, decide="alone")
    first = min(each)
    assert run.by_rank("doing") == {
        rank: "barrier at the end" if stop == first else f"all_reduce of step {first}"
        for rank, stop in enumerate(each)
    }


def test_a_barrier_on_one_rank_meets_no_all_reduce() -> None:
    wanted = {0: "barrier", 1: "all_reduce of step 1", 2: "all_reduce of step 1"}
    assert hung("wrong_barrier", 3, barrier="some").by_rank("doing") == wanted
    limited = launch("wrong_barrier", ranks=3, limit_s=4)
    assert limited.ended == "time-out" and limited.by_rank("doing") == wanted
    right = ran("wrong_barrier", 3, (("barrier", "all"),))
    assert right.ok and right.value("total") == [9.0, 9.0, 9.0]


def test_a_monitored_barrier_names_the_ranks_that_it_misses() -> None:
    run = ran("wrong_barrier", 3, (("barrier", "monitored"), ("timeout_s", 2.0)))
    assert run.failure is not None and run.failure.rank == 0
    said = run.failure.consequences[0]
    assert "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in said


def test_an_evaluation_through_ddp_hangs_if_there_are_buffers() -> None:
    run = hung("wrong_evaluation", 2)
    assert run.by_rank("doing") == {0: "forward for the evaluation", 1: "barrier at the end"}
    assert set(run.by_rank("buffers").values()) == {3}


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_evaluation_of_the_module_or_without_buffers_ends_well(ranks: int) -> None:
    assert ran("wrong_evaluation", ranks, (("through", "module"),)).ok
    no_buffers = ran("wrong_evaluation", ranks, (("norm", "layer"),))
    assert no_buffers.ok and set(no_buffers.by_rank("buffers").values()) == {0}
    alone = ran("wrong_evaluation", 1, (("norm", "layer"),))
    assert no_buffers.value("valid_loss") == pytest.approx(alone.value("valid_loss"), rel=1e-5)


@pytest.mark.parametrize("turns", [False, True])
@RANKS
def test_every_rank_pays_for_the_slow_one(turns: bool, ranks: int) -> None:
    """Steps last at least as long as the sleep in them, whoever sleeps."""
    run = ran("wait_for_straggler", ranks, (("slow_ms", 50.0), ("turns", turns)))
    for rank, steps in enumerate(every(run, "step_ms")):
        assert len(steps) == 9 and sum(steps) > 7 * 50
        slept = [ms >= 50 for ms in run.values("work_ms", rank)]
        mine = [step % ranks == rank if turns else rank == ranks - 1 for step in range(9)]
        assert all(did for did, should in zip(slept, mine, strict=True) if should)
        assert run.values("loss", rank) == run.values("loss")


def test_a_slow_rank_is_given_up_by_the_one_that_waits() -> None:
    run = launch("wait_for_straggler", ranks=2, slow_ms=20_000.0, timeout_s=2.0, steps=1)
    assert run.result["deaths"][0]["rank"] == 0
    assert run.failure is not None and run.failure.rank == 1, "whom it waited for"
    assert "Timed out waiting 2000ms" in run.failure.consequences[0]
    assert run.by_rank("step_ms") == {}


def test_tensors_of_unequal_size_are_not_gathered() -> None:
    run = ran("gather_unequal_sizes", 2)
    assert run.failure is not None and "invalid tensor size" in run.failure.what
