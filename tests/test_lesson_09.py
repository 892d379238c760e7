"""Lesson 09: what is sent, what it costs, and that the pretended link is as slow as it says."""

from __future__ import annotations

import numpy as np
import pytest

from ddp_course import collectives, curves, launch
from ddp_course.errors import BadArgument, NoEvidence
from ddp_course.run.run import Run

NUMBERS = 256 * 512 + 512 + 512 * 256 + 256  # of send_under_autocast's model


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("autocast", 4), ("bfloat16", 2)])
def test_gradients_travel_in_the_type_of_the_parameters(precision: str, size: int) -> None:
    run = launch("send_under_autocast", ranks=2, precision=precision)
    assert collectives(run).bytes_handed("all_reduce") == 4 * NUMBERS * size


def test_hooks_send_less_and_still_train() -> None:
    runs = {
        hook: launch("compress_gradients", ranks=2, hook=hook) for hook in ("none", "bf16", "fp16")
    }
    runs["powersgd"] = launch("compress_gradients", ranks=2, hook="powersgd", rank=1)
    sent = {hook: collectives(run).bytes_handed("all_reduce") for hook, run in runs.items()}
    assert sent["bf16"] - 8 == sent["fp16"] - 8 == (sent["none"] - 8) / 2
    assert sent["powersgd"] < sent["none"] / 20
    assert all(run.value("accuracy") > 0.85 for run in runs.values())
    drawn = curves(runs, "step", "loss")
    assert {len(points) for points in drawn.series.values()} == {87}
    assert drawn.alt in drawn._repr_html_() and "powersgd" in str(drawn)


def test_the_scaler_of_all_ranks_skips_and_one_of_its_own_parts_them() -> None:
    infinite = launch("scale_loss", ranks=2, mistake="infinite_loss")
    for rank in range(2):
        assert infinite.values("skipped", rank) == [False, True, False, False]
        assert infinite.values("scale", rank) == [2.0**16] + [2.0**15] * 3
    assert infinite.value("spread") == 0
    right, clipped = (launch("scale_loss", ranks=2, mistake=m) for m in ("none", "clip_scaled"))
    assert np.isclose(clipped.values("norm")[0], right.values("norm")[0] * 2**16, rtol=1e-4)
    resumed = launch("scale_loss", ranks=2, mistake="one_scaler_resumed", clip=0.0, steps=2)
    assert resumed.value("spread") > 1


def link(**knobs: float) -> Run:
    return launch("overlap_link", ranks=2, **knobs)  # type: ignore[arg-type]


def test_the_pretended_link_holds_back_what_it_carries() -> None:
    """Lower bounds only: a busy machine makes everything slower, and nothing faster."""
    one = link(bucket_mb=25.0)
    assert one.value("buckets") == 1
    assert min(one.values("took_ms")) >= one.value("pretended_work_ms") + one.value(
        "pretended_link_ms"
    )
    many = link(bucket_mb=0.2, latency_ms=8.0)
    assert many.value("buckets") == 16
    assert np.isclose(many.value("pretended_link_ms"), 16 * 8 + 42.1, atol=0.1)
    later = many.values("took_ms")[1:]  # in the first step the buckets are different ones
    assert min(later) >= many.value("pretended_link_ms")


def test_a_larger_batch_wants_a_larger_learning_rate() -> None:
    alone, split, kept, scaled = (
        launch("scale_learning_rate", ranks=ranks, local_batch=batch, lr=lr)
        for ranks, batch, lr in ((1, 48, 0.1), (4, 12, 0.1), (4, 48, 0.1), (4, 48, 0.4))
    )
    np.testing.assert_allclose(split.value("accuracy"), alone.value("accuracy"), atol=0.01)
    assert kept.value("accuracy") < scaled.value("accuracy") - 0.2


def test_averaging_seldom_sends_less_and_never_parts_the_models() -> None:
    each, epoch, never = (launch("average_seldom", ranks=4, every=n) for n in (1, 29, 0))
    sent = [collectives(run).bytes_handed("all_reduce") for run in (each, epoch, never)]
    assert [count // 9640 for count in sent] == [176, 8, 2]
    assert epoch.value("accuracy") > each.value("accuracy") - 0.05
    assert each.value("spread") == epoch.value("spread") == 0
    assert never.value("spread") > 0.1 and len(set(never.by_rank("accuracy").values())) > 1


def test_curves_say_what_they_lack() -> None:
    run = launch("average_seldom", ranks=1, epochs=1)
    with pytest.raises(NoEvidence, match="loss"):
        curves({"mine": run}, "step", "loss")
    with pytest.raises(BadArgument, match="nothing to draw"):
        curves({}, "step", "loss")
    with pytest.raises(BadArgument, match="not together"):
        curves({"mine": run}, "accuracy", "spread")
