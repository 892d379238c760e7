"""Profiler traces of a run's ranks, as intervals on one clock.

`read` turns the Chrome traces that `report.traced` leaves (`trace-<rank>.json`, written by
torch.profiler) into steps. All times are integers in nanoseconds since the epoch:
`baseTimeNanoseconds + ts * 1000` of the file (torch/csrc/profiler, Kineto's output_json.cpp), so
the ranks of one host need no further alignment.

What is taken from a trace:

    spans        the names that the job gives by `report.span`: forward, backward, optimizer, …
                 In a script that gives none: what torch itself marks, see `_found_spans`
    compute      on the CPU the `aten::*` and `autograd::engine::evaluate_function*` events of the
                 thread that holds the spans; on a GPU every kernel that is not NCCL's
    collectives  on the CPU the `gloo:*` events of Gloo's own threads; on a GPU NCCL's kernels

The GPU branch (`_gpu_events`) is tested with synthetic traces only, not verified on several GPUs.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted
from ddp_course.errors import NoEvidence

Interval = tuple[int, int]  # start and end in ns; the end is not part of it

_LARGEST_BYTES = 300_000_000
_LARGEST_US = 1e15  # some thirty years; a foreign number beyond it would overflow
_BACKWARD = "autograd::engine::evaluate_function"
_FEWER = "trace fewer steps: put `with traced():` around two or three of them"


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same set of instants as sorted intervals that do not touch."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersection(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """The instants that are in both, as sorted intervals."""
    a, b = union(first), union(second)
    common: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            common.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """The instants of the first that are not in the second, as sorted intervals."""
    a, b = union(first), union(second)
    if not a:
        return []
    edges = [a[0][0], *(edge for interval in b for edge in interval), a[-1][1]]
    gaps = [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2)]
    return intersection(a, gaps)


def length(intervals: Iterable[Interval]) -> int:
    """How many ns the intervals cover together; an instant in two of them counts once."""
    return sum(end - start for start, end in union(intervals))


@dataclass(frozen=True)
class Span:
    """A named piece of the step on a rank's main thread."""

    name: str
    start_ns: int
    end_ns: int
    found: bool = False  # not named by the job: see _found_spans

    @property
    def ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True)
class Collective:
    """One collective on one rank.

    arrived_ns is the moment when the last rank entered the same collective: before it this rank
    only waits, from then on data can move. It lies within start_ns … end_ns.
    """

    op: str  # "all_reduce", "broadcast", …
    start_ns: int
    arrived_ns: int
    end_ns: int
    elements: int | None  # of the tensor, where the trace has its shape

    @property
    def waiting_ms(self) -> float:
        return (self.arrived_ns - self.start_ns) / 1e6

    @property
    def transfer_ms(self) -> float:
        return (self.end_ns - self.arrived_ns) / 1e6


@dataclass(frozen=True)
class RankStep:
    """What one rank did in one training step."""

    rank: int
    spans: tuple[Span, ...]
    compute: tuple[Interval, ...]
    collectives: tuple[Collective, ...]

    @property
    def communication(self) -> list[Interval]:
        return union((c.start_ns, c.end_ns) for c in self.collectives)

    @property
    def exposed(self) -> list[Interval]:
        """When this rank communicated and computed nothing."""
        return difference(self.communication, self.compute)

    @property
    def outside(self) -> list[Interval]:
        """When it computed in none of the spans."""
        return difference(self.compute, ((s.start_ns, s.end_ns) for s in self.spans))

    @property
    def communication_ms(self) -> float:
        return length(self.communication) / 1e6

    @property
    def exposed_ms(self) -> float:
        return length(self.exposed) / 1e6

    @property
    def hidden_share(self) -> float | None:
        """Share of the communication time hidden behind computation, 0…1; None without any.

        |union(communication) ∩ union(compute)| / |union(communication)|, where | | is the length
        in time. A collective that waits for another rank counts as communication.
        """
        return hidden_share([self])

    @property
    def waiting_ms(self) -> float:
        """Time in which a collective of this rank waited for a rank that had not arrived."""
        return length((c.start_ns, c.arrived_ns) for c in self.collectives) / 1e6

    @property
    def extent(self) -> Interval:
        times = [(s.start_ns, s.end_ns) for s in self.spans]
        times += [*self.compute, *((c.start_ns, c.end_ns) for c in self.collectives)]
        return min((t[0] for t in times), default=0), max((t[1] for t in times), default=0)

    def span_ms(self, name: str) -> float:
        """How long the spans of this name took together."""
        return sum(span.ms for span in self.spans if span.name == name)


Step = tuple[RankStep, ...]  # one entry a rank, in the order of ranks


def hidden_share(ranks: Iterable[RankStep]) -> float | None:
    """The same share as RankStep.hidden_share with the lengths of several ranks or steps added."""
    ranks = list(ranks)
    total = sum(length(r.communication) for r in ranks)
    exposed = sum(length(r.exposed) for r in ranks)
    return 1 - exposed / total if total else None


def read(traces: Mapping[int, Path], *, host: bool = False) -> list[Step]:
    """The steps that all ranks recorded, in order.

    traces: rank → its `trace-<rank>.json`. A step ends with the span "optimizer", or, in a job that
    names no such span, where the first name of the step comes again. In a script that names none it
    ends with the optimizer's step, and what comes after the last one is left out.
    host: what the CPU did, also where a GPU computed.

    Raises NoEvidence when a file is missing, cut off, foreign or too large.
    """
    if not traces:
        raise NoEvidence("There is no trace to read.", action="launch with trace=True")
    by_rank = {rank: _read_rank(rank, traces[rank], host) for rank in sorted(traces)}
    count = min(len(steps) for steps in by_rank.values())
    return [_arrivals([steps[i] for steps in by_rank.values()]) for i in range(count)]


def _read_rank(rank: int, path: Path, host: bool) -> list[RankStep]:
    base_ns, events = _load(path)
    gpu = not host and any(event.get("cat") == "kernel" for event in events)
    spans, compute, collectives = (_gpu_events if gpu else _cpu_events)(base_ns, events)
    if not (spans or compute or collectives):
        raise NoEvidence(
            f"{path.name} holds no event that a timeline can show.",
            cause="nothing ran inside `with traced():`, or another program wrote the file",
            action=_FEWER,
        )
    if not spans:
        spans = _found_spans(base_ns, events)
    edges = _step_edges(spans)
    return [
        RankStep(
            rank,
            tuple(s for s in spans if start <= s.start_ns < end),
            tuple(intersection(compute, [(start, end)])),
            tuple(c for c in collectives if start <= c.start_ns < end),
        )
        for start, end in pairwise(edges)
    ]


def _load(path: Path) -> tuple[int, list[dict[str, Any]]]:
    """The base time and the complete events (those with a duration) of a trace file."""
    try:
        size = path.stat().st_size
        if size > _LARGEST_BYTES:
            raise NoEvidence(
                f"{path.name} has {size / 1e6:.0f} MB; more than {_LARGEST_BYTES / 1e6:.0f} MB "
                "is not read.",
                cause="too many steps were traced",
                action=_FEWER,
            )
        trace = untrusted.read_json(path, _LARGEST_BYTES)
    except OSError as error:
        raise NoEvidence(
            f"{path.name} cannot be read: {error.strerror}.",
            cause="the rank ended before it left `with traced():`",
            action="look at the run's first failure, then launch again with trace=True",
        ) from None
    except ValueError as error:
        raise NoEvidence(
            f"{path.name} is not a whole JSON file: {error}",
            cause="the rank was stopped while it wrote the file, or the disk is full",
            action="launch again with trace=True",
        ) from None
    foreign = NoEvidence(
        f"{path.name} is JSON, but not a trace of torch.profiler.",
        cause="another program wrote it: traceEvents or baseTimeNanoseconds is missing",
        action="launch again with trace=True",
    )
    if not isinstance(trace, dict):
        raise foreign
    base, events = trace.get("baseTimeNanoseconds"), trace.get("traceEvents")
    if not isinstance(base, int) or not 0 <= base < 2**62 or not isinstance(events, list):
        raise foreign
    return base, [event for event in events if _is_complete(event)]


def _is_complete(event: object) -> bool:
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and isinstance(event.get("name"), str)
        and isinstance(event.get("tid"), int | str | None)
        and _is_number(event.get("ts"))
        and _is_number(event.get("dur"))
        and event["dur"] >= 0
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST_US  # false for NaN


def _interval(base_ns: int, event: Mapping[str, Any]) -> Interval:
    start = base_ns + round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


_Parts = tuple[list[Span], list[Interval], list[Collective]]


def _cpu_events(base_ns: int, events: Sequence[dict[str, Any]]) -> _Parts:
    named = [e for e in events if e.get("cat") == "user_annotation" and e["name"].isidentifier()]
    main = _main_thread(named) or _main_thread(e for e in events if e["name"].startswith("aten::"))
    compute = [
        _interval(base_ns, e)
        for e in events
        if e.get("tid") == main and e["name"].startswith(("aten::", _BACKWARD))
    ]
    collectives = [
        _collective(base_ns, e, e["name"].removeprefix("gloo:"), "Input Dims")
        for e in events
        if e["name"].startswith("gloo:")
    ]
    return _spans(base_ns, [e for e in named if e.get("tid") == main]), union(compute), collectives


def _main_thread(events: Iterable[dict[str, Any]]) -> object:
    """The thread of most of these events."""
    threads = Counter(e.get("tid") for e in events)
    return threads.most_common(1)[0][0] if threads else None


def _found_spans(base_ns: int, events: Sequence[dict[str, Any]]) -> list[Span]:
    """Parts of a step in a script that names none, where it computes most on the CPU.

    forward     of a DDP model, as DDP marks it
    backward    operations of the autograd engine, until another operation begins
    optimizer   the step of an optimizer from torch.optim, as it marks it
    """
    main = _main_thread(e for e in events if e["name"].startswith("aten::"))
    parts: dict[str, list[Interval]] = {"forward": [], "backward": [], "optimizer": []}
    within = False
    for event in sorted((e for e in events if e.get("tid") == main), key=lambda e: float(e["ts"])):
        name, (start, end) = event["name"], _interval(base_ns, event)
        backward = parts["backward"]
        if name.startswith(_BACKWARD):
            if within:
                start, end = backward[-1][0], max(end, backward.pop()[1])
            backward.append((start, end))
            within = True
        elif within and start >= backward[-1][1] and name.startswith("aten::"):
            within = False
        elif name == "DistributedDataParallel.forward":
            parts["forward"].append((start, end))
        elif name.startswith("Optimizer.step#"):
            parts["optimizer"].append((start, end))
    spans = [Span(name, *one, found=True) for name in parts for one in union(parts[name])]
    return sorted(spans, key=lambda span: span.start_ns)


def _gpu_events(base_ns: int, events: Sequence[dict[str, Any]]) -> _Parts:
    """NOT VERIFIED on several GPUs: the shape of NCCL's events is taken from Kineto's sources."""
    kernels = [e for e in events if e.get("cat") == "kernel"]
    nccl = [e for e in kernels if e["name"].startswith("nccl")]
    compute = [_interval(base_ns, e) for e in kernels if not e["name"].startswith("nccl")]
    collectives = [_collective(base_ns, e, _nccl_op(e["name"]), "In msg nelems") for e in nccl]
    marks = [e for e in events if e["name"].isidentifier()]
    on_gpu = [e for e in marks if e.get("cat") == "gpu_user_annotation"]
    on_cpu = [e for e in marks if e.get("cat") == "user_annotation"]
    return _spans(base_ns, on_gpu or on_cpu), union(compute), collectives


def _nccl_op(kernel: str) -> str:
    """ncclDevKernel_AllReduce_Sum_f32_RING_LL(…) → all_reduce."""
    found = re.match(r"nccl\w*?Kernel_([A-Za-z]+)", kernel)
    name = found.group(1) if found else "collective"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _spans(base_ns: int, events: Iterable[dict[str, Any]]) -> list[Span]:
    spans = [Span(e["name"], *_interval(base_ns, e)) for e in events]
    return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))


def _collective(base_ns: int, event: Mapping[str, Any], op: str, sizes: str) -> Collective:
    start, end = _interval(base_ns, event)
    arguments = event.get("args")
    size = arguments.get(sizes) if isinstance(arguments, dict) else None
    return Collective(op, start, start, end, _elements(size))


def _elements(size: object) -> int | None:
    """Elements of the first tensor in the profiler's `Input Dims`, e.g. [[262656]] → 262656."""
    while isinstance(size, list) and size and isinstance(size[0], list):
        size = size[0]
    sizes = size if isinstance(size, list) else [size]
    if not sizes or not all(isinstance(n, int) and 0 <= n < 2**40 for n in sizes):
        return None
    product = math.prod(sizes[:16])
    return product if product < 2**60 else None


def _step_edges(spans: Sequence[Span]) -> list[int]:
    """Edges between steps; the first step starts and the last one ends beyond all events."""
    if found := [span.end_ns for span in spans if span.found and span.name == "optimizer"]:
        return [0, *found]
    edges = []
    if any(span.found for span in spans):
        return [0, 2**63]
    has_optimizer = any(span.name == "optimizer" for span in spans)
    for before, span in pairwise(spans):
        starts = before.name == "optimizer" if has_optimizer else span.name == spans[0].name
        if starts:
            edges.append(span.start_ns)
    return [0, *edges, 2**63]


def _arrivals(step: Sequence[RankStep]) -> Step:
    """Match each collective with the same one of the other ranks, to see when the last arrived.

    The same one: same operation, same size, same place in the order of those on its rank. Two of
    Gloo's threads may take up two buckets at nearly the same time, so the bare order of the start
    times is not enough.
    """
    groups: dict[tuple[str, int | None, int], list[int]] = defaultdict(list)
    keys: list[list[tuple[str, int | None, int]]] = []
    for rank in step:
        seen: Counter[tuple[str, int | None]] = Counter()
        keys.append([])
        for collective in sorted(rank.collectives, key=lambda c: c.start_ns):
            kind = (collective.op, collective.elements)
            key = (*kind, seen[kind])
            seen[kind] += 1
            keys[-1].append(key)
            groups[key].append(collective.start_ns)
    matched = []
    for rank, own in zip(step, keys, strict=True):
        ordered = sorted(rank.collectives, key=lambda c: c.start_ns)
        known = [
            replace(c, arrived_ns=min(max(groups[key]), c.end_ns))
            for c, key in zip(ordered, own, strict=True)
        ]
        matched.append(replace(rank, collectives=tuple(known)))
    return tuple(matched)
