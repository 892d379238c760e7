"""Lesson 13: what each plan holds and sends, and that all of them train one model."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ddp_course import collectives, differences, launch
from ddp_course.run.run import Run

WHOLE = 526_336 * 4 / 1e6  # MB of the parameters


@cache
def trained(plan: str, ranks: int = 4) -> Run:
    return launch("shard_model", ranks=ranks, plan=plan)


@pytest.mark.parametrize(("plan", "parameters", "gradients", "optimizer"), [
    ("ddp", 1, 1, 2), ("zero", 1, 1, 0.5),
    ("shard", 0.25, 0.25, 0.5), ("shard_keep", 0.25, 0.25, 0.5),
])  # fmt: skip
def test_what_a_plan_holds(
    plan: str, parameters: float, gradients: float, optimizer: float
) -> None:
    run = trained(plan)
    names = ("parameters_mb", "gradients_mb", "optimizer_mb")
    for rank in range(4):
        held = [run.value(name, rank) / WHOLE for name in names]
        np.testing.assert_allclose(held, (parameters, gradients, optimizer), atol=0.01)
    gap = differences({"": run}, trained("ddp", 1), "outputs")
    assert gap.words[""] != "different"


def test_what_a_plan_sends_in_three_steps() -> None:
    assert collectives(trained("shard")).calls("all_gather") == 3 * 16 + 8
    assert collectives(trained("shard_keep")).calls("all_gather") == 3 * 8 + 8
    gathered = collectives(trained("shard")).bytes_handed("all_gather")
    assert np.isclose(gathered, 7 * WHOLE * 1e6 / 4)


def test_a_method_beside_forward_sees_pieces() -> None:
    bare, told = (launch("wrong_forward_method", ranks=2, registered=r) for r in (False, True))
    assert "mixed torch.Tensor and DTensor" in bare.value("answer")
    assert told.value("answer") == "[4]"
    assert bare.value("held") == [2, 8]


def test_split_layers_are_one_process() -> None:
    one, split = launch("split_layers", ranks=1), launch("split_layers", ranks=4)
    assert differences({"": split}, one, "outputs").values[""] < 1e-14
    assert collectives(split).calls("all_reduce") == 7
    assert 0.25 < split.value("parameters_kb") / one.value("whole_kb") < 0.26


def test_activations_computed_again_take_less_and_change_nothing() -> None:
    kept, again = (launch("recompute_activations", ranks=1, recompute=r) for r in (False, True))
    assert (kept.value("forwards"), again.value("forwards")) == (8, 16)
    assert again.value("saved_kb") < kept.value("saved_kb") / 4
    assert kept.value("gradient") == again.value("gradient")
