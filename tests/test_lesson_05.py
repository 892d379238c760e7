"""Lesson 05: however the model is cut, it ends where one process ends; and what each cut costs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_jobs import every, ran

from ddp_course import stages
from ddp_course.run.run import Run

RANKS = pytest.mark.parametrize("ranks", [1, 2, 4])
SCHEDULES = pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
Array = npt.NDArray[Any]


@cache
def one_process() -> tuple[Array, Array]:
    """The lesson's training, written again without nn's layers: last gradients, final weights."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8) for _ in range(8)]
    parameters = [p.detach().double().requires_grad_() for one in layers for p in one.parameters()]
    xs, ys = (torch.randn(4, 48, 8, dtype=torch.float64) for _ in range(2))
    for x, y in zip(xs, ys, strict=True):
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            x = torch.tanh(torch.einsum("bi,oi->bo", x, weight) + bias)
        gradients = torch.autograd.grad(((x - y) ** 2).sum() / y.numel(), parameters)
        parameters = [
            (p - 0.5 * g).detach().requires_grad_()
            for p, g in zip(parameters, gradients, strict=True)
        ]
    flat = [torch.cat([t.detach().flatten() for t in one]) for one in (gradients, parameters)]
    return flat[0].numpy(), flat[1].numpy()


def ends_where_one_process_ends(gradients: Array, weights: Array) -> None:
    for got, wanted in zip((gradients, weights), one_process(), strict=True):
        assert got.shape == (576,)
        assert np.linalg.norm(got - wanted) <= 1e-12 * np.linalg.norm(wanted)
        assert np.abs(got - wanted).max() <= 1e-12


def joined(run: Run, name: str, ranks: list[int]) -> Array:
    """One whole model from the pieces of these ranks."""
    return np.concatenate([run.value(name, rank) for rank in ranks])


def test_the_oracle_learns_something() -> None:
    gradients, _ = one_process()
    assert np.abs(gradients).max() > 0.01 and np.abs(gradients[:72]).max() > 1e-4
    losses = ran("train_whole_model", 1).values("loss")
    assert len(losses) == 4 and losses[-1] < losses[0]


@RANKS
@pytest.mark.parametrize("job", ["train_whole_model", "train_two_devices"])
def test_a_whole_model_on_each_rank(job: str, ranks: int) -> None:
    run = ran(job, ranks)
    assert run.ok, str(run)
    for rank in range(ranks):
        ends_where_one_process_ends(
            np.array(run.value("gradients", rank)), np.array(run.value("weights", rank))
        )


def test_two_devices_are_two_only_where_there_are_two() -> None:
    run = ran("train_two_devices", 2)
    for first, second in run.by_rank("devices").values():
        assert run.value("two_devices") is (first != second)
    assert len({tuple(d) for d in run.by_rank("devices").values()}) == 1 + run.value("two_devices")


@RANKS
@SCHEDULES
def test_a_pipeline_is_the_whole_model(schedule: str, ranks: int) -> None:
    run = ran("train_pipeline", ranks, (("schedule", schedule), ("forward_ms", 24.0)), trace=True)
    assert run.ok, str(run)
    everyone = list(range(ranks))
    ends_where_one_process_ends(*(joined(run, n, everyone) for n in ("gradients", "weights")))
    assert run.by_rank("layers") == dict.fromkeys(everyone, 8 // ranks)
    np.testing.assert_allclose(
        run.values("loss", ranks - 1), ran("train_whole_model", 1).values("loss"), rtol=1e-12
    )
    assert every(run, "loss")[: ranks - 1] == [[None] * 4] * (ranks - 1), "only the last knows it"


@SCHEDULES
def test_the_timeline_has_the_order_of_the_schedule(schedule: str) -> None:
    """And no stage begins what has not come from its neighbour."""
    run = ran("train_pipeline", 4, (("schedule", schedule), ("forward_ms", 24.0)), trace=True)
    figure = stages(run)
    assert (figure.micro_batches, figure.formula) == (4, pytest.approx(3 / 7))
    for row in figure.rows:
        order = "".join(span.name[0] for span in row.spans)
        ahead = 4 if schedule == "gpipe" else 4 - row.rank  # forwards before the first backward
        assert order == "f" * ahead + "bf" * (4 - ahead) + "b" * ahead
    at = [{(span.name, number): span for number, span in row.numbered} for row in figure.rows]
    for above, below in pairwise(at):
        for i in range(4):
            assert above["forward", i].end_ns <= below["forward", i].end_ns
            assert below["backward", i].start_ns <= above["backward", i].start_ns
    assert all(span.ms >= 24 / 4 / 4 for row in figure.rows for span in row.spans)
    assert 0 <= figure.bubble < 1


def test_one_stage_alone_has_no_bubble_by_the_formula() -> None:
    run = ran("train_pipeline", 1, (("schedule", "gpipe"), ("forward_ms", 24.0)), trace=True)
    assert stages(run).formula == 0


def test_1f1b_wants_as_many_micro_batches_as_stages() -> None:
    run = ran("train_pipeline", 4, (("schedule", "1f1b"), ("micro_batches", 2)))
    assert run.failure is not None
    assert "Number of microbatches (2) must be greater than" in run.failure.traceback


@RANKS
@SCHEDULES
def test_replicated_pipelines_are_the_whole_model(schedule: str, ranks: int) -> None:
    run = ran("train_pipeline_replicas", ranks, (("schedule", schedule),))
    assert run.ok, str(run)
    length = min(2, ranks)
    assert run.by_rank("replica") == {rank: rank // length for rank in range(ranks)}
    assert run.by_rank("stage") == {rank: rank % length for rank in range(ranks)}
    assert set(run.by_rank("all_reduces").values()) == {1}
    for first in range(0, ranks, length):
        pieces = list(range(first, first + length))
        ends_where_one_process_ends(*(joined(run, n, pieces) for n in ("gradients", "weights")))
    for rank in range(ranks):
        np.testing.assert_array_equal(
            run.value("weights", rank), run.value("weights", rank % length)
        )


@pytest.mark.parametrize(
    ("schedule", "ranks", "pieces"),
    [*product(("gpipe", "1f1b"), (1, 2, 4), (8,)), ("1f1b", 4, 48), ("gpipe", 1, 1)],
)
def test_what_a_stage_keeps(schedule: str, ranks: int, pieces: int) -> None:
    """A batch of 48 x 64 floats is 12 KB. A stage of k layers keeps its input, k outputs of tanh,
    and on the last rank the target, for each micro-batch in flight."""
    run = ran("count_pipeline_memory", ranks, (("schedule", schedule), ("micro_batches", pieces)))
    assert run.ok, str(run)
    layers = 8 // ranks
    for rank in range(ranks):
        flying = pieces if schedule == "gpipe" else ranks - rank
        tensors = 1 + layers + (rank == ranks - 1)
        assert run.value("in_flight", rank) == flying
        assert run.value("saved_kb", rank) == pytest.approx(12 * tensors * flying / pieces)
        assert run.value("saved_after_kb", rank) == 0, "all of it was given back"
        assert run.value("parameter_kb", rank) == layers * (64 * 64 + 64) * 4 / 1024


@RANKS
def test_device_ids_are_refused(ranks: int) -> None:
    run = ran("wrong_device_ids", ranks)
    assert run.failure is not None and "training" not in run.values("state")
    assert "device_ids and output_device arguments only work with" in run.failure.traceback
    assert f"got device_ids [{run.failure.rank}]" in run.failure.traceback


@RANKS
@pytest.mark.parametrize(("forgotten", "came"), [("target", "output"), ("hidden", "hidden")])
def test_what_is_on_the_wrong_device_is_refused(forgotten: str, came: str, ranks: int) -> None:
    run = ran("wrong_output_device", ranks, (("forgotten", forgotten),))
    assert run.failure is not None and run.values("state", run.failure.rank)[-1] == came
    assert "RuntimeError: " in run.failure.what
    assert "an operation got tensors from two devices" in run.failure.what


@RANKS
@pytest.mark.parametrize("buffer", ["reused", "waited", "own"])
def test_isend_sends_what_the_buffer_holds_later(buffer: str, ranks: int) -> None:
    run = ran("wrong_isend", ranks, (("buffer", buffer),))
    assert run.ok, str(run)
    got = [3.0] * 4 if buffer == "reused" else [0.0, 1.0, 2.0, 3.0]
    assert run.by_rank("received") == {0: [], **dict.fromkeys(range(1, ranks), got)}
    wrong = 3 if buffer == "reused" else 0
    assert run.by_rank("wrong") == {0: 0, **dict.fromkeys(range(1, ranks), wrong)}
