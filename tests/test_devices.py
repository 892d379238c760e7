"""The choice of device with pretended GPUs; not verified on several real ones."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch

from ddp_course.rank.place import Place, choose, my_place, time_limit


@pytest.mark.parametrize(
    ("local_rank", "ranks", "gpus", "device", "backend"),
    [
        (0, 1, 0, "cpu", "gloo"),
        (1, 2, 0, "cpu", "gloo"),
        (0, 1, 1, "cuda:0", "nccl"),
        (1, 2, 1, "cpu", "gloo"),
        (1, 2, 2, "cuda:1", "nccl"),
        (3, 4, 2, "cpu", "gloo"),
        (3, 4, 8, "cuda:3", "nccl"),
    ],
)
def test_nccl_only_where_each_local_rank_has_a_gpu(
    local_rank: int, ranks: int, gpus: int, device: str, backend: str
) -> None:
    choice = choose(local_rank=local_rank, local_world_size=ranks, gpus=gpus)
    assert (choice.device, choice.backend) == (device, backend)


def test_more_ranks_than_gpus_is_explained() -> None:
    why = choose(local_rank=0, local_world_size=4, gpus=2).why
    assert "4 ranks but 2 GPU(s)" in why
    assert "cannot share one GPU" in why


def place(monkeypatch: pytest.MonkeyPatch, *, rank: int, ranks: int, gpus: int) -> Place:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    return my_place()


def test_a_rank_with_a_gpu_makes_it_current(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    mine = place(monkeypatch, rank=1, ranks=2, gpus=2)
    assert current == [torch.device("cuda:1")]
    assert mine.device == mine.device_id == torch.device("cuda:1")
    assert mine.device_ids == [1]
    assert mine.backend == "nccl"


def test_a_rank_on_the_cpu_touches_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("touched a GPU"))
    mine = place(monkeypatch, rank=1, ranks=2, gpus=1)
    assert mine.device == torch.device("cpu")
    assert mine.device_id is None
    assert mine.device_ids is None
    assert mine.backend == "gloo"


def test_a_single_process_needs_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert my_place().device == torch.device("cpu")


def test_the_time_limit_is_the_launchers_or_a_minute() -> None:
    assert time_limit({}) == timedelta(minutes=1)
    assert time_limit({"DDP_COURSE_TIMEOUT_S": "12.5"}) == timedelta(seconds=12.5)
