"""Lesson 07: every variant's numbers against what the lesson's arithmetic says, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ddp_course import launch
from ddp_course.run.run import Run

Gradient = npt.NDArray[Any]
K = 4
ALL_REDUCES = {
    "last": 1,
    "first": 1,
    "every": K,
    "never": 0,
    "forward_outside": K,
    "backward_outside": 1,
    "unscaled": 1,
    "clip_late": 1,
    "clip_early": 1,
}
WRONG = {"first", "never", "unscaled", "clip_early"}
DIVERGE = {"first", "never"}


def network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def gradient(model: Any, x: Any, y: Any) -> Gradient:
    import torch

    loss = ((model(x) - y) ** 2).mean()
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return np.concatenate([part.flatten().numpy() for part in parts])


def clipped(vector: Gradient, max_norm: float = 0.05) -> Gradient:
    shortened: Gradient = vector * min(1.0, max_norm / (np.linalg.norm(vector) + 1e-6))
    return shortened


def accumulated(variant: str, ranks: int) -> tuple[list[Gradient], Gradient]:
    """Each rank's gradient before the step, and the right one; no process group anywhere."""
    import torch

    torch.manual_seed(0)
    model = network()
    x = torch.randn(6 * K * ranks, 20, dtype=torch.float64)
    y = torch.randn(6 * K * ranks, 4, dtype=torch.float64)
    right = gradient(model, x, y)
    shares = [(x[rank::ranks].chunk(K), y[rank::ranks].chunk(K)) for rank in range(ranks)]
    held = [np.zeros_like(right) for _ in range(ranks)]
    for i in range(K):
        for rank, (xs, ys) in enumerate(shares):
            held[rank] = held[rank] + gradient(model, xs[i], ys[i]) / (
                1 if variant == "unscaled" else K
            )
        last = i == K - 1
        if {"first": i == 0, "never": False}.get(variant, last):
            held = [np.mean(held, axis=0)] * ranks
        if variant == "clip_early" or (variant == "clip_late" and last):
            held = [clipped(one) for one in held]
    return held, clipped(right) if variant.startswith("clip") else right


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("variant", ALL_REDUCES)
def test_a_variant(variant: str, ranks: int) -> None:
    run = launch("compare_accumulation", ranks=ranks, variant=variant)
    assert run.ok, str(run)
    held, right = accumulated(variant, ranks)
    assert set(run.by_rank("all_reduces").values()) == {ALL_REDUCES[variant]}
    assert set(run.by_rank("bytes_sent").values()) == {8 * right.size * ALL_REDUCES[variant]}
    for rank, mine in enumerate(held):
        distance = np.linalg.norm(mine - right) / np.linalg.norm(right)
        assert run.value("distance", rank) == pytest.approx(distance, rel=1e-9, abs=1e-14)
    spread = 0.1 * np.max(np.max(held, axis=0) - np.min(held, axis=0))
    assert list(run.by_rank("spread").values()) == pytest.approx([spread] * ranks, rel=1e-9)
    alone = ranks == 1 and variant in DIVERGE
    assert (run.value("distance") > 0.1) is (variant in WRONG and not alone)
    assert (run.value("spread") > 0) is (variant in DIVERGE and not alone)


def windows(step_on: str) -> Iterator[tuple[int, int]]:
    ends = {"first": [0, 1, 5, 9], "full": [0, 4, 8], "last": [0, 4, 8, 10]}[step_on]
    return pairwise(ends)


def distance_of(step_on: str, scale: str) -> float:
    """From one process that steps on windows of 4, 4, 2, relative to the way it has moved."""
    import torch

    torch.manual_seed(0)
    model = network()
    x, y = (torch.randn(10, 12, n, dtype=torch.float64) for n in (20, 4))
    start = [p.detach().clone() for p in model.parameters()]

    def trained(steps: list[list[tuple[int, float]]]) -> Gradient:
        with torch.no_grad():
            for p, first in zip(model.parameters(), start, strict=True):
                p.copy_(first)
        for step in steps:
            total = sum(gradient(model, x[i], y[i]) / divisor for i, divisor in step)
            at = 0
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * torch.tensor(total[at : at + p.numel()]).view_as(p)
                    at += p.numel()
        return np.concatenate([p.detach().flatten().numpy() for p in model.parameters()])

    def divisor(i: int) -> float:
        return {"window": 4.0 if i < 8 else 2.0, "k": 4.0, "nothing": 1.0}[scale]

    right = trained([[(i, float(end - i0)) for i in range(i0, end)] for i0, end in windows("last")])
    found = trained([[(i, divisor(i)) for i in range(i0, end)] for i0, end in windows(step_on)])
    before = np.concatenate([p.flatten().numpy() for p in start])
    return float(np.linalg.norm(found - right) / np.linalg.norm(right - before))


def repaired(**knobs: str) -> Run:
    run = launch("repair_windows", ranks=2, **knobs)
    assert run.ok, str(run)
    return run


@pytest.mark.parametrize(
    ("forward", "step_on", "scale", "all_reduces", "lost"),
    [
        ("outside", "first", "nothing", 10, 1),
        ("inside", "first", "nothing", 3, 1),
        ("inside", "full", "window", 2, 2),
        ("inside", "last", "k", 3, 0),
        ("inside", "last", "window", 3, 0),
    ],
)
def test_a_stage_of_the_repair(
    forward: str, step_on: str, scale: str, all_reduces: int, lost: int
) -> None:
    run = repaired(forward=forward, step_on=step_on, scale=scale)
    assert run.value("windows") == [end - start for start, end in windows(step_on)]
    assert (run.value("all_reduces"), run.value("lost")) == (all_reduces, lost)
    assert run.value("distance") == pytest.approx(distance_of(step_on, scale), rel=1e-6, abs=1e-13)
    right = (step_on, scale) == ("last", "window")
    assert (run.value("distance") < 1e-13) is right


@pytest.mark.parametrize("micro_batches", [1, 2, 5, 24])
def test_pieces_may_be_unequal(micro_batches: int) -> None:
    """24 samples a rank in 5 pieces are 5, 5, 5, 5 and 4: each counts by its samples."""
    run = launch("accumulate_gradients", ranks=2, micro_batches=micro_batches)
    one = launch("train_one_process", ranks=1)
    np.testing.assert_allclose(run.value("weights"), one.value("weights"), atol=1e-5)
    assert set(run.values("all_reduces")) == {1}


def test_another_k_sends_no_more() -> None:
    for k in (2, 8):
        run = launch("time_accumulation", ranks=2, micro_batches=k, batch=4)
        assert run.value("all_reduces") == 8
        everyone = launch("time_accumulation", ranks=2, micro_batches=k, batch=4, sync="every")
        assert everyone.value("all_reduces") == 8 * k
