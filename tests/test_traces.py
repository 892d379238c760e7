"""Traces: the algebra of intervals, traces with known overlaps, and files that are not traces."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_course.errors import NoEvidence
from ddp_course.observe.trace import (
    Interval,
    difference,
    hidden_share,
    intersection,
    length,
    read,
    union,
)

BASE_NS = 1_790_857_026_000_000_000
MAIN, GLOO = 100, 101

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=12,
)


def instants(intervals: list[Interval]) -> set[int]:
    return {t for start, end in intervals for t in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_the_algebra_is_that_of_sets(a: list[Interval], b: list[Interval]) -> None:
    assert instants(union(a + b)) == instants(a) | instants(b)
    assert instants(intersection(a, b)) == instants(a) & instants(b)
    assert instants(difference(a, b)) == instants(a) - instants(b)
    assert length(a) == len(instants(a))


@given(INTERVALS, INTERVALS)
def test_results_are_sorted_and_apart(a: list[Interval], b: list[Interval]) -> None:
    for result in (union(a), intersection(a, b), difference(a, b)):
        edges = [edge for interval in result for edge in interval]
        assert edges == sorted(edges)
        assert all(start < end for start, end in result)
    merged = union(a)
    assert all(left[1] < right[0] for left, right in pairwise(merged))


def event(name: str, start_ms: float, end_ms: float, *, tid: int = MAIN, **more: Any) -> Any:
    cat = "cpu_op" if name.startswith(("aten::", "autograd::")) else "user_annotation"
    times = {"ts": start_ms * 1000, "dur": (end_ms - start_ms) * 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": MAIN, "tid": tid, **times, **more}


def bucket(start_ms: float, end_ms: float, elements: int = 1000) -> Any:
    dims = {"Input Dims": [[elements]]}
    return event("gloo:all_reduce", start_ms, end_ms, tid=GLOO, args=dims)


def step(at_ms: float, *buckets: Any) -> list[Any]:
    """Forward 0-10 and backward 10-30 (computing until 20), then the optimizer until 32."""
    return [
        event("forward", at_ms, at_ms + 10),
        event("aten::linear", at_ms, at_ms + 9),
        event("backward", at_ms + 10, at_ms + 30),
        event("autograd::engine::evaluate_function: AddmmBackward0", at_ms + 10, at_ms + 20),
        event("optimizer", at_ms + 30, at_ms + 32),
        *buckets,
    ]


def write(folder: Path, rank: int, events: list[Any], **top: Any) -> Path:
    path = folder / f"trace-{rank}.json"
    trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": events, **top}
    path.write_text(json.dumps(trace))
    return path


def test_overlap_of_one_rank(tmp_path: Path) -> None:
    # Communication 12-18 and 16-28; computing 10-20: 16 ms of it, 8 hidden.
    path = write(tmp_path, 0, step(0, bucket(12, 18), bucket(16, 28, 500)))
    [[rank]] = read({0: path})
    assert [span.name for span in rank.spans] == ["forward", "backward", "optimizer"]
    assert rank.communication_ms == pytest.approx(16)
    assert rank.exposed_ms == pytest.approx(8)
    assert rank.hidden_share == pytest.approx(0.5)
    assert rank.waiting_ms == 0
    assert [c.elements for c in rank.collectives] == [1000, 500]
    assert rank.extent == (BASE_NS, BASE_NS + 32_000_000)


def test_parts_are_found_in_a_script_that_names_none(tmp_path: Path) -> None:
    """As torch marks them; backward ends where another operation begins."""

    def unmarked(at: float) -> list[Any]:
        engine = "autograd::engine::evaluate_function: AddmmBackward0"
        return [
            event("DistributedDataParallel.forward", at + 1, at + 5),
            event("aten::linear", at + 2, at + 4),
            event(engine, at + 6, at + 9),
            event("aten::mm", at + 7, at + 8),
            event(engine, at + 10, at + 12),
            event("aten::mul", at + 13, at + 14),
            event("Optimizer.step#SGD.step", at + 15, at + 17),
        ]

    after = [event("aten::mm", 50, 51)]
    steps = read({0: write(tmp_path, 0, [*unmarked(0), *unmarked(20), *after])})
    for [rank], start in zip(steps, (0, 20), strict=True):
        assert [
            (span.name, round((span.start_ns - BASE_NS) / 1e6) - start, span.ms, span.found)
            for span in rank.spans
        ] == [("forward", 1, 4, True), ("backward", 6, 6, True), ("optimizer", 15, 2, True)]
        assert length(rank.outside) == 1_000_000


def test_waiting_lasts_until_the_last_rank_arrives(tmp_path: Path) -> None:
    early = write(tmp_path, 0, step(0, bucket(12, 26), bucket(26, 28)))
    late = write(tmp_path, 1, step(0, bucket(20, 26), bucket(26, 28)))
    [both] = read({0: early, 1: late})
    assert [c.waiting_ms for c in both[0].collectives] == pytest.approx([8, 0])
    assert [c.transfer_ms for c in both[0].collectives] == pytest.approx([6, 2])
    assert [c.waiting_ms for c in both[1].collectives] == pytest.approx([0, 0])
    # Hidden: 8 of rank 0's 16 ms, none of rank 1's 8 ms.
    assert hidden_share(both) == pytest.approx(8 / 24)


def test_buckets_taken_up_in_another_order_are_matched_by_size(tmp_path: Path) -> None:
    first = write(tmp_path, 0, step(0, bucket(12.00, 20, 10), bucket(12.01, 21, 99)))
    swapped = write(tmp_path, 1, step(0, bucket(12.00, 21, 99), bucket(12.01, 20, 10)))
    [both] = read({0: first, 1: swapped})
    waits = {c.elements: c.waiting_ms for c in both[0].collectives}
    assert waits == pytest.approx({10: 0.01, 99: 0})


def test_a_collective_that_only_one_rank_recorded_waits_for_nobody(tmp_path: Path) -> None:
    more = write(tmp_path, 0, step(0, bucket(12, 20), bucket(21, 25)))
    fewer = write(tmp_path, 1, step(0, bucket(15, 20)))
    [both] = read({0: more, 1: fewer})
    assert [c.waiting_ms for c in both[0].collectives] == pytest.approx([3, 0])


def test_steps_end_with_the_optimizer(tmp_path: Path) -> None:
    accumulating = [
        *[event("forward", 0, 5), event("backward", 5, 10)],
        *[event("forward", 10, 15), event("backward", 15, 20), event("optimizer", 20, 21)],
    ]
    path = write(tmp_path, 0, [*accumulating, *step(30, bucket(42, 45))])
    first, second = read({0: path})
    assert [span.name for span in first[0].spans].count("forward") == 2
    assert [span.name for span in second[0].spans] == ["forward", "backward", "optimizer"]
    assert (len(first[0].collectives), len(second[0].collectives)) == (0, 1)


def test_without_an_optimizer_a_step_begins_with_its_first_name(tmp_path: Path) -> None:
    names = ["data", "forward", "backward"] * 3
    events = [event(name, 10 * i, 10 * i + 5) for i, name in enumerate(names)]
    steps = read({0: write(tmp_path, 0, events)})
    assert [[span.name for span in rank.spans] for [rank] in steps] == [names[:3]] * 3


def test_only_steps_of_all_ranks_count(tmp_path: Path) -> None:
    two = write(tmp_path, 0, step(0) + step(40))
    one = write(tmp_path, 1, step(0))
    assert len(read({0: two, 1: one})) == 1


def test_other_threads_and_torchs_own_names_are_not_ours(tmp_path: Path) -> None:
    events = [
        *step(0, bucket(12, 28)),
        event("aten::mul", 20, 28, tid=77),
        event("Optimizer.step#SGD.step", 30, 32),
        event("DistributedDataParallel.forward", 0, 10),
    ]
    [[rank]] = read({0: write(tmp_path, 0, events)})
    assert len(rank.spans) == 3
    assert rank.exposed_ms == pytest.approx(8)


def test_unfinished_and_malformed_events_are_left_out(tmp_path: Path) -> None:
    odd = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1},
        {"ph": "X", "name": 7, "ts": 1, "dur": 1},
        {"ph": "X", "name": "gloo:all_reduce", "ts": float("nan"), "dur": 1},
        {"ph": "X", "name": "gloo:all_reduce", "ts": 1, "dur": float("inf")},
        {"ph": "X", "name": "gloo:all_reduce", "ts": 1, "dur": -5},
        {"ph": "i", "name": "gloo:all_reduce", "ts": 1, "dur": 5, "args": None},
        "text",
        None,
        event("gloo:all_reduce", 12, 13, tid=GLOO, args={"Input Dims": [[]]}),
        event("gloo:barrier", 13, 14, tid=GLOO),
    ]
    [[rank]] = read({0: write(tmp_path, 0, step(0) + odd)})
    assert [(c.op, c.elements) for c in rank.collectives] == [
        ("all_reduce", None),
        ("barrier", None),
    ]


def test_nccl_kernels_on_a_gpu(tmp_path: Path) -> None:
    def kernel(name: str, start: float, end: float, stream: int) -> Any:
        return event(name, start, end, tid=stream) | {"cat": "kernel"}

    marks = [event(name, 0, 1) for name in ("forward", "backward", "optimizer")]
    on_gpu = [e | {"cat": "gpu_user_annotation"} for e in step(100) if e["cat"] != "cpu_op"]
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    kernels = [kernel("gemm", 110, 120, 7), kernel(nccl, 115, 125, 20)]
    [[rank]] = read({0: write(tmp_path, 0, marks + on_gpu + kernels)})
    assert rank.spans[0].start_ns == BASE_NS + 100_000_000
    assert [c.op for c in rank.collectives] == ["all_reduce"]
    assert rank.hidden_share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"traceEvents": [{"ph": "X", "na', "not a whole JSON file"),
        ("", "not a whole JSON file"),
        ("\x00\xff", "not a whole JSON file"),
        ("[" * 200_000, "not a whole JSON file"),
        ("[]", "not a trace of torch.profiler"),
        ('{"traceEvents": []}', "not a trace of torch.profiler"),
        ('{"traceEvents": 3, "baseTimeNanoseconds": 3}', "not a trace of torch.profiler"),
        ('{"traceEvents": [], "baseTimeNanoseconds": 3}', "no event"),
    ],
)
def test_other_files_are_refused_with_an_action(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "trace-0.json"
    path.write_text(content)
    with pytest.raises(NoEvidence, match=words) as refused:
        read({0: path})
    assert refused.value.action


def test_missing_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoEvidence, match="No such file"):
        read({0: tmp_path / "trace-0.json"})
    huge = tmp_path / "trace-1.json"
    with huge.open("wb") as file:
        file.truncate(400_000_000)
    with pytest.raises(NoEvidence, match="400 MB"):
        read({1: huge})
    with pytest.raises(NoEvidence, match="no trace"):
        read({})


def test_an_event_that_lasts_no_time_has_its_place(tmp_path: Path) -> None:
    only = event("ncclDevKernel_AllReduce", 5, 5, tid=7) | {"cat": "kernel"}
    [[rank]] = read({0: write(tmp_path, 0, [only])})
    assert rank.extent == (BASE_NS + 5_000_000, BASE_NS + 5_000_000)
    assert rank.communication_ms == 0
