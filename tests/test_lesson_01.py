"""Lesson 01: what the text claims about threads and processes, each by a run or by torch itself."""

from __future__ import annotations

import pytest
import torch
from test_jobs import process_parallel, ran, thread_parallel
from torch import nn

from ddp_course import launch


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_any_number_of_threads_is_one_training(threads: int) -> None:
    thread_parallel(ran("thread_parallel", 1, (("threads", threads),)))


def test_traffic_grows_with_threads_and_not_with_processes() -> None:
    threads = [ran("thread_parallel", 1, (("threads", n),)).value("copied_mib") for n in (2, 3, 4)]
    assert [mib / threads[0] for mib in threads] == [1, 2, 3]
    processes = [ran("process_parallel", n) for n in (2, 4)]
    for run in processes:
        process_parallel(run)
    assert processes[0].value("copied_mib") == processes[1].value("copied_mib") == threads[0] / 2


def test_no_rank_finishes_when_one_is_killed() -> None:
    run = launch("process_parallel", ranks=3, steps=5000, limit_s=40, wait=False).wait_for_step(5)
    run.kill(1)
    assert 0 not in run.exit_codes.values()
    assert run.failure is not None and run.failure.rank == 1


def test_data_parallel_runs_a_replica_for_each_gpu_and_else_hands_through() -> None:
    """Why `replicas` is 1 without GPUs: torch leaves the list of devices empty."""
    gpus, calls = torch.cuda.device_count(), []
    model = nn.Linear(2, 1).to("cuda" if gpus else "cpu")
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    wrapped = nn.DataParallel(model, device_ids=list(range(gpus or 2)))
    wrapped(torch.ones(8, 2, device=model.weight.device))
    assert len(calls) == min(max(1, gpus), 8)
