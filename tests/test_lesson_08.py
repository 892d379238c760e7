"""Lesson 08: who gets which sample, and which numbers are true; each job against an oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddp_course import differences, launch
from ddp_course.rank.data import load


@pytest.mark.parametrize(("drop", "given", "twice", "never"), [
    (False, 12, [0, 1], []), (True, 8, [], [8, 9]),
])  # fmt: skip
def test_a_sampler_fills_up_or_leaves_out(
    drop: bool, given: int, twice: list[int], never: list[int]
) -> None:
    run = launch("share_samples", ranks=4, drop_last=drop)
    assert (run.value("given"), run.value("twice"), run.value("never")) == (given, twice, never)
    assert run.value("indices", 1) == [1, 5, 9][: given // 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_read_by_every_reader(workers: int) -> None:
    run = launch("read_stream", ranks=4, samples=24, workers=workers)
    assert run.value("times") == [4 * max(1, workers)]


def test_a_mapped_file_is_in_memory_once() -> None:
    read, shared, mapped = (launch("hold_data", ranks=4, how=w) for w in ("read", "share", "map"))
    for rank in range(4):
        assert read.value("own_mib", rank) > 60
        assert 14 < shared.value("own_mib", rank) < 24
        assert mapped.value("own_mib", rank) < 8
        assert read.value("total", rank) == mapped.value("total", rank) == 4096 * 1024


def test_equal_seeds_draw_equal_rotations() -> None:
    same, other = (launch("augment_samples", ranks=4, seed_by_rank=own) for own in (False, True))
    assert same.by_rank("same_percent") == dict.fromkeys(range(4), 100)
    assert other.by_rank("same_percent") == {0: 100, 1: 0, 2: 0, 3: 0}


def test_statistics_of_the_global_batch_make_batchnorm_one_process_again() -> None:
    one = launch("normalise_batches", ranks=1)
    local, shared = (launch("normalise_batches", ranks=4, shared=how) for how in (False, True))
    gaps = differences({"local": local, "shared": shared}, one).values
    assert gaps["local"] > 0.01 and gaps["shared"] < 1e-14
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="GPU"):
            nn.SyncBatchNorm(3)(torch.ones(2, 3))
    finally:
        dist.destroy_process_group()


def test_padding_is_counted_twice() -> None:
    run = launch("count_padding", ranks=4)
    rows = zip(*map(run.values, ("size", "samples_counted", "once", "padded")), strict=True)
    for size, counted, once, padded in rows:
        assert counted == -(-size // 4) * 4 > size
        right = round(once * size)
        extra = padded * counted - right
        assert np.isclose(extra, round(extra)) and 0 <= round(extra) <= counted - size


def test_the_loss_of_all_is_that_of_one_process() -> None:
    run, one = launch("report_metric", ranks=4), launch("report_metric", ranks=1)
    np.testing.assert_allclose(run.values("mean"), one.values("mean"), atol=1e-4)
    assert run.by_rank("best_by_all") == dict.fromkeys(range(4), one.value("best_by_all"))
    assert len(set(run.by_rank("best_by_own").values())) > 1
    assert len(load("digits", train=False)[0]) >= 60, "a validation set of 60 samples"
