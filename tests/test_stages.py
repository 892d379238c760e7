"""The pipeline's view: idle time computed by hand, and what it says without a pipeline."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_traces import event, write

from ddp_course import stages
from ddp_course.errors import NoEvidence
from ddp_course.observe.trace import read


class FakeRun:
    job, ranks = "train_pipeline", 2

    def __init__(self, traces: dict[int, Path]) -> None:
        self.traces = traces

    def wait(self) -> FakeRun:
        return self


def piece(name: str, start_ms: float, end_ms: float) -> Any:
    return event(name, start_ms, end_ms)


def two_stages(folder: Path) -> FakeRun:
    """Two micro-batches through two stages: forward 10 ms, backward 20 ms, 90 ms in all."""
    first = [piece("forward", 0, 10), piece("forward", 10, 20)]
    first += [piece("backward", 50, 70), piece("backward", 70, 90), piece("optimizer", 90, 91)]
    second = [piece("forward", 10, 20), piece("forward", 20, 30)]
    second += [piece("backward", 30, 50), piece("backward", 50, 70), piece("optimizer", 70, 71)]
    return FakeRun({0: write(folder, 0, first), 1: write(folder, 1, second)})


def test_the_bubble_is_what_one_counts_by_hand(tmp_path: Path) -> None:
    figure = stages(two_stages(tmp_path))
    assert figure.micro_batches == 2
    assert figure.step_ms == pytest.approx(90)
    assert figure.idle_ms == pytest.approx({0: 30, 1: 30})
    assert figure.bubble == pytest.approx(60 / 180) == figure.formula
    assert figure.alt in figure.svg and "rank 1 is idle 30 ms" in figure.alt
    for shown in (str(figure), unescape(figure._repr_html_())):
        assert "33 % of the stages' time is idle; the formula says 33 %" in shown
        assert "2 stages, 2 micro-batches" in shown
        assert "(p − 1) / (m + p − 1)" in shown


def test_each_piece_has_the_number_of_its_micro_batch(tmp_path: Path) -> None:
    figure = stages(two_stages(tmp_path))
    numbered = [(number, span.name) for number, span in figure.rows[1].numbered]
    assert numbered == [(0, "forward"), (1, "forward"), (0, "backward"), (1, "backward")]
    bands = [line for line in str(figure).splitlines() if line.startswith("rank 0  |")]
    assert bands and set(bands[0].removeprefix("rank 0  ")) == set("01ab·|")
    assert "backward of micro-batch 1, 20.0 ms" in figure.svg


def test_no_trace_and_no_pipeline_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoEvidence, match=r"launch\('train_pipeline', ranks=2, trace=True\)"):
        stages(FakeRun({}))
    other = FakeRun({0: write(tmp_path, 0, [piece("optimizer", 0, 1)])})
    with pytest.raises(NoEvidence, match=r"timeline\(run\)"):
        stages(other)


def test_the_hosts_spans_are_read_also_where_a_gpu_computed(tmp_path: Path) -> None:
    """A GPU's own spans would not show time in which the host holds it up."""
    on_gpu = {"cat": "gpu_user_annotation"}
    events = [
        piece("forward", 0, 10),
        {**piece("forward", 9, 10), **on_gpu},
        {**piece("gemm", 9, 10), "cat": "kernel"},
    ]
    path = write(tmp_path, 0, events)
    [[rank]] = read({0: path}, host=True)
    assert [span.ms for span in rank.spans] == pytest.approx([10])
    [[rank]] = read({0: path})
    assert [span.ms for span in rank.spans] == pytest.approx([1])
