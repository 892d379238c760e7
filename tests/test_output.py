"""Which rank failed first by its output alone, what followed, and where the ranks were."""

from __future__ import annotations

import json
import signal
import traceback
from pathlib import Path

from ddp_course.observe import output
from ddp_course.observe.output import Observed, exit_codes, first_rank
from ddp_course.run.reader import Line

BROKEN = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:4711."
WAITED = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation"
TABLE = """\
============================================================
job.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_00:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 12)
============================================================"""


def raised(t_s: float, rank: int, error: str) -> list[Line]:
    texts = ["Traceback (most recent call last):", '  File "job.py", line 3, in main', error]
    return [Line(t_s, rank, "stderr", f"[rank{rank}]: {text}") for text in texts]


def test_the_culprit_comes_before_the_louder_victim() -> None:
    lines = raised(1.0, 0, BROKEN) + raised(1.1, 1, "ValueError: boom")
    assert first_rank(lines, Observed(), {0: 1, 1: 1}) == 1
    assert output.consequences(lines, {0: 1, 1: 1}, 1) == {0: BROKEN}
    assert output.followed(lines, 0) and not output.followed(lines, 1)


def test_among_equals_the_earliest_comes_first() -> None:
    lines = raised(1.0, 1, "ValueError: a") + raised(1.1, 0, "ValueError: b")
    assert first_rank(lines, Observed(), {0: 1, 1: 1}) == 1
    observed = Observed(deaths=[(1.0, 2, -9), (1.1, 0, -9)])
    assert first_rank([], observed, {0: -9, 2: -9}) == 2
    assert first_rank([], observed, {0: 0, 2: -signal.SIGTERM}) is None


def test_a_group_of_exceptions_is_named_by_its_own_line() -> None:
    try:
        raise ExceptionGroup("two of them", [ValueError(1), KeyError("k")])
    except ExceptionGroup as error:
        texts = "".join(traceback.format_exception(error)).splitlines()
    lines = [Line(1.0, 0, "stderr", f"[rank0]: {text}") for text in texts]
    assert output.exception_of(lines, 0) == "ExceptionGroup: two of them (2 sub-exceptions)"
    assert "KeyError: 'k'" in output.traceback_of(lines, 0)


def test_the_same_error_on_every_rank_is_told_once() -> None:
    error = "ModuleNotFoundError: No module named 'nothing'"
    lines = raised(1.0, 0, error) + raised(1.1, 1, error)
    assert output.consequences(lines, {0: 1, 1: 1}, 0) == {1: "the same error"}


def test_exit_codes_come_in_the_order_of_ranks() -> None:
    observed = Observed(deaths=[(1.0, 2, 1), (1.1, 0, -signal.SIGKILL)])
    assert list(exit_codes([], observed, 3, ok=False)) == [0, 2]
    assert exit_codes([], observed, 3, ok=True)[1] == 0


def test_a_rank_that_is_gone_is_nowhere() -> None:
    observed = Observed(deaths=[(12.0, 1, 1)], started={0, 1})
    where = output.places(raised(12.0, 1, WAITED), observed, 3, Path("job.py"))
    assert where[1] == f"gone: {WAITED}"
    assert "not started yet" in where[2]


def test_torchruns_table_is_cut_out() -> None:
    texts = ["E1101 failed (exitcode: -9)", *TABLE.splitlines(), "a last word"]
    assert output.table_of(texts) == TABLE
    assert output.table_of(["nothing", "===="]) == ""


def test_what_was_observed_survives_the_file() -> None:
    seen = Observed(deaths=[(1.0, 2, 1)], killed={1: 9}, paused={0}, started={0, 1, 2})
    assert Observed.of(json.loads(json.dumps(seen.record()))) == seen
    for wrong in ({}, {"deaths": [[1]], "killed": {}, "paused": [], "started": []}):
        assert Observed.of(wrong) == Observed(), "another version's, or a stranger's"
