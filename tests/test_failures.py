"""Which rank failed first, what followed, and what a forgotten pause explains."""

from __future__ import annotations

import signal
from pathlib import Path

from ddp_course.failures import Observed, exit_codes, first_failure, time_out
from ddp_course.runs import Line

BROKEN = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:4711."
WAITED = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation"


def raised(t_s: float, rank: int, error: str) -> list[Line]:
    texts = ["Traceback (most recent call last):", '  File "job.py", line 3, in main', error]
    return [Line(t_s, rank, "stderr", f"[rank{rank}]: {text}") for text in texts]


def test_the_culprit_comes_before_the_louder_victim() -> None:
    lines = raised(1.0, 0, BROKEN) + raised(1.1, 1, "ValueError: boom")
    failure = first_failure(lines, Observed(), {0: 1, 1: 1})
    assert failure is not None and failure.rank == 1
    assert failure.consequences == {0: BROKEN}


def test_the_same_error_on_every_rank_is_told_once() -> None:
    error = "ModuleNotFoundError: No module named 'nothing'"
    failure = first_failure(raised(1.0, 0, error) + raised(1.1, 1, error), Observed(), {0: 1, 1: 1})
    assert failure is not None and failure.consequences == {1: "the same error"}


def test_exit_codes_come_in_the_order_of_ranks() -> None:
    observed = Observed(deaths=[(1.0, 2, 1), (1.1, 0, -signal.SIGKILL)])
    assert list(exit_codes([], observed, 3, ok=False)) == [0, 2]
    assert exit_codes([], observed, 3, ok=True)[1] == 0


def test_a_forgotten_pause_is_named_as_the_cause() -> None:
    observed = Observed(deaths=[(12.0, 1, 1)], paused={0}, started={0, 1})
    lines = raised(12.0, 1, WAITED)
    failed = first_failure(lines, observed, {1: 1})
    assert failed is not None
    assert failed.what.startswith("you paused rank 0 and did not resume it")
    ended = time_out(lines, observed, 2, 20, Path("job.py"))
    assert ended.what.startswith("you paused rank 0 and did not resume it")
    assert ended.where[1] == f"gone: {WAITED}"
