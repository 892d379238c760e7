"""timeline(run): what each rank did in one step, on one clock, from the profiler of that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ddp_course.diagnosis.words import named
from ddp_course.errors import BadArgument, NoEvidence
from ddp_course.observe import trace as traces
from ddp_course.observe.recorder.tracing import KEEP_STEPS, MOST_S
from ddp_course.run.run import check_run
from ddp_course.show import svg
from ddp_course.show.document import (
    Document,
    Figure,
    Note,
    Rank,
    Shown,
    Table,
    Title,
    counted,
    percent,
    rank_colour,
)

DEFINITION = (
    "hidden: the share of a rank's communication time in which it computes as well, "
    "|communication ∩ compute| / |communication|. Waiting for another rank inside a collective "
    "counts as communication. exposed: the rest, in ms. waiting: from a rank's entry into a "
    "collective until the last rank has entered it."
)

_FIRST = (
    f"The first {KEEP_STEPS} steps are traced, within {MOST_S:.0f} s; "
    "`with traced():` in the script chooses others."
)
_LEFT, _TOP = 132.0, 6.0
_MOST_RANKS = 8
_HEAD = ("rank", "forward ms", "backward ms", "communication ms", "hidden", "exposed ms",
         "waiting ms", "collectives")  # fmt: skip
_MUCH = 0.25  # of a step: when waiting takes more, that is what the figure says
_HARDLY = 0.05  # hidden: then it says so as well where communicating is mostly waiting


class TracedRun(Protocol):
    """What a timeline needs of a Run."""

    def wait(self) -> object: ...
    @property
    def job(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def traces(self) -> dict[int, Path]: ...


def traced(run: TracedRun) -> dict[int, Path]:
    """The traces of a run's ranks, once it has ended. Raises NoEvidence if there are none."""
    check_run(run)
    run.wait()
    if not run.traces:
        asked = getattr(run, "asked", {}).get("trace", False)
        raise NoEvidence(
            f"This run of {run.job} recorded no trace.",
            cause="no rank made a process group or an optimizer's step, or none came to its end"
            if asked
            else "it was launched without trace=True",
            action="diagnose(run) says how it ended"
            if asked
            else f"launch({run.job!r}, ranks={run.ranks}, trace=True)",
        )
    return run.traces


def timeline(run: TracedRun, *, step: int = -1, ranks: Sequence[int] | None = None) -> Timeline:
    """Draw one traced step of a run, waiting for the run to end first.

    step: which of the traced steps, counted from 0; negative ones count from the end.
    ranks: which ranks to draw; without it the first eight.

    Raises NoEvidence if the run was not traced, BadArgument for a step or a rank that it lacks.
    """
    files = traced(run)
    steps = traces.read(files)
    if not isinstance(step, int) or not -len(steps) <= step < len(steps):
        raise BadArgument(
            f"step={step!r}, but {len(steps)} steps were traced.",
            action=f"choose 0 … {len(steps) - 1}, or -1 for the last",
        )
    there = sorted(files)
    shown = there[:_MOST_RANKS] if ranks is None else ranks
    if not isinstance(shown, list | tuple | range) or not shown:
        raise BadArgument(
            f"ranks={shown!r} is not a list of ranks.", action=f"give ranks={there[:2]}"
        )
    if missing := [rank for rank in shown if rank not in files]:
        raise BadArgument(
            f"There is no trace of rank {missing[0]!r}.",
            action=f"choose among {', '.join(map(str, there))}",
        )
    return Timeline(run.job, steps[step], step % len(steps), len(steps), run.ranks, tuple(shown))


@dataclass(frozen=True, repr=False)
class Timeline(Shown):
    """One step of a run, drawn; its numbers are attributes, times in ms."""

    job: str
    ranks: traces.Step
    step: int
    steps: int
    world_size: int
    shown: tuple[int, ...]

    @cached_property
    def hidden_share(self) -> float | None:
        """Share of all ranks' communication time that is hidden behind computation, 0…1.

        None if the step holds no communication. See traces.RankStep.hidden_share.
        """
        return traces.hidden_share(self.ranks)

    @property
    def hidden_share_of(self) -> dict[int, float | None]:
        return {r.rank: r.hidden_share for r in self.ranks}

    @property
    def exposed_ms(self) -> dict[int, float]:
        """Per rank: time in which it communicated and computed nothing."""
        return {r.rank: r.exposed_ms for r in self.ranks}

    @property
    def waiting_ms(self) -> dict[int, float]:
        """Per rank: time in which one of its collectives waited for a rank that had not arrived."""
        return {r.rank: r.waiting_ms for r in self.ranks}

    @property
    def communication_ms(self) -> dict[int, float]:
        return {r.rank: r.communication_ms for r in self.ranks}

    @property
    def collectives(self) -> dict[int, int]:
        """Per rank: how many collectives the step held (under DDP: one all-reduce a bucket)."""
        return {r.rank: len(r.collectives) for r in self.ranks}

    @property
    def step_ms(self) -> float:
        """From the first event of any rank to the last."""
        return (self._end - self._start) / 1e6

    @property
    def message(self) -> str:
        """The one thing that the figure says."""
        waited = {r.rank: r.waiting_ms for r in self.ranks if self._waited_much(r)}
        late = min(self.waiting_ms, key=self.waiting_ms.__getitem__)
        if waited and late not in waited:
            who, most = named(waited), max(waited.values())
            return (
                f"{who[0].upper()}{who[1:]} waited for rank {late}: "
                f"{most:.0f} ms of the {self.step_ms:.0f} ms step"
            )
        if self.hidden_share is None:
            return "No communication in this step"
        return f"{percent(self.hidden_share)} of the communication is hidden behind computation"

    def _waited_much(self, rank: traces.RankStep) -> bool:
        """Whether its waiting says more of the step than the share that is hidden."""
        if rank.waiting_ms > _MUCH * self.step_ms:
            return True
        hidden = self.hidden_share or 0.0
        return hidden < _HARDLY and rank.waiting_ms > rank.communication_ms / 2

    @property
    def alt(self) -> str:
        """The figure in words."""
        parts = [
            f"rank {r.rank} communicates for {r.communication_ms:.1f} ms, "
            f"{r.exposed_ms:.1f} ms of it exposed, and waits for {r.waiting_ms:.1f} ms"
            for r in self._drawn
        ]
        return f"Timeline of one step of {self.job}, {self.step_ms:.1f} ms. {'; '.join(parts)}."

    @cached_property
    def svg(self) -> str:
        bands, y = [], _TOP
        for rank in self._drawn:
            band = _Band(rank, self._start, self._end)
            bands.append(band.draw(y))
            y += band.height
        axis = svg.time_axis(_LEFT, _TOP, y, self.step_ms)
        return svg.figure(y + 20, axis + "".join(bands), alt=self.alt)

    def document(self) -> Document:
        bands = [_text_band(rank, self._start, self._end) for rank in self._drawn]
        return Document(
            Title(self.message),
            Note(self._what),
            Figure(self.svg, "\n".join(bands)),
            Figure(_legend(), _TEXT_LEGEND),
            Table(_HEAD, [_cells(rank) for rank in self._drawn]),
            Note(DEFINITION),
        )

    @property
    def _what(self) -> str:
        drawn = len(self._drawn)
        less = f" ({drawn} of them drawn; ranks=[…] chooses)" if drawn < self.world_size else ""
        return (
            f"{self.job}, {counted(self.world_size)}{less}: "
            f"step {self.step + 1} of {self.steps} traced, {self.step_ms:.1f} ms. {self._steps_are}"
        ).strip()

    @property
    def _steps_are(self) -> str:
        """How the steps were found in a script that names no parts of them."""
        spans = [span for rank in self.ranks for span in rank.spans]
        if not all(span.found for span in spans):
            return ""
        ends = any(span.name == "optimizer" for span in spans)
        how = "A step ends with the optimizer's." if ends else "No optimizer's step ends it."
        return f"{how} {_FIRST}"

    @cached_property
    def _drawn(self) -> list[traces.RankStep]:
        return [rank for rank in self.ranks if rank.rank in self.shown]

    @property
    def _start(self) -> int:
        return min(rank.extent[0] for rank in self.ranks)

    @property
    def _end(self) -> int:
        return max(rank.extent[1] for rank in self.ranks)


def _cells(r: traces.RankStep) -> list[str | Rank]:
    times = r.span_ms("forward"), r.span_ms("backward"), r.communication_ms
    return [
        Rank(r.rank), *(f"{t:.1f}" for t in times), percent(r.hidden_share),
        f"{r.exposed_ms:.1f}", f"{r.waiting_ms:.1f}", str(len(r.collectives)),
    ]  # fmt: skip


_ROW = 21.0  # height of the compute row
_LANE = 9.0  # height of one row of collectives


class _Band:
    """The rows of one rank: computing, its collectives, and what of them is exposed."""

    def __init__(self, rank: traces.RankStep, start_ns: int, end_ns: int) -> None:
        self.rank = rank
        self.start_ns, self.scale = start_ns, (svg.RIGHT - _LEFT) / max(end_ns - start_ns, 1)
        self.colour = rank_colour(rank.rank)
        self.lanes = _lanes(rank.collectives)
        self.height = _ROW + 4 + (_LANE + 2) * max(len(self.lanes), 1) + 6 + 12

    def draw(self, y: float) -> str:
        hatch = svg.unique("wait")
        lanes_at = y + _ROW + 4
        exposed_at = lanes_at + (_LANE + 2) * max(len(self.lanes), 1)
        operations = {c.op.replace("_", "-") for c in self.rank.collectives} or {"all-reduce"}
        name = operations.pop() if len(operations) == 1 else "collectives"
        parts = [
            svg.hatch(hatch, self.colour),
            svg.rank_label(self.rank.rank, y, _ROW + 4 + _LANE),
            svg.text(_LEFT - 6, y + 15, "compute", size=11, anchor="end", fill=svg.QUIET),
            svg.text(_LEFT - 6, lanes_at + 8, name, size=11, anchor="end", fill=svg.QUIET),
            *self._spans(y),
        ]
        for lane in self.lanes:
            parts += [self._collective(i, c, lanes_at, hatch) for i, c in lane]
            lanes_at += _LANE + 2
        for start, end in self.rank.exposed:
            tip = f"exposed {(end - start) / 1e6:.2f} ms: communicating, not computing"
            parts.append(svg.box(*self._place(start, end, exposed_at), 3, svg.BAD, tip=tip))
        return "".join(parts)

    def _place(self, start: int, end: int, y: float) -> tuple[float, float, float]:
        return _LEFT + (start - self.start_ns) * self.scale, y, (end - start) * self.scale

    def _spans(self, y: float) -> list[str]:
        tip = f"rank {self.rank.rank}: computing"
        frames, labels = [], []
        for busy in self._busy(self.rank.outside):
            frames.append(svg.box(*self._place(*busy, y + 0.5), _ROW - 1, svg.PALE, tip=tip))
        for span in self.rank.spans:
            x, _, width = self._place(span.start_ns, span.end_ns, y)
            tip = f"rank {self.rank.rank}: {span.name} {span.ms:.2f} ms"
            frames.append(svg.box(x, y, width, _ROW, svg.PAPER, stroke=svg.SHADE, tip=tip))
            if width > 7 * len(span.name):
                labels.append(
                    svg.text(x + width / 2, y + 14.5, span.name, size=11.5, anchor="middle")
                )
            # Backward, where communication can hide, stands out most.
            tone = svg.STRONG if span.name == "backward" else svg.PALE
            frames += [
                svg.box(*self._place(*busy, y + 0.5), _ROW - 1, tone, tip=tip)
                for busy in self._busy([(span.start_ns, span.end_ns)])
            ]
        return frames + labels

    def _busy(self, within: list[traces.Interval]) -> list[traces.Interval]:
        """When the rank computed, without the gaps that are too narrow to be seen."""
        gap_ns = round(0.4 / self.scale)
        parts = traces.intersection(self.rank.compute, within)
        wide = traces.union((start, end + gap_ns) for start, end in parts)
        return [(start, end - gap_ns) for start, end in wide]

    def _collective(self, index: int, c: traces.Collective, y: float, hatch: str) -> str:
        size = "" if c.elements is None else f", {c.elements:,} elements"
        tip = (
            f"{c.op} {index + 1}{size}: waited {c.waiting_ms:.2f} ms, moved {c.transfer_ms:.2f} ms"
        )
        x, _, whole = self._place(c.start_ns, c.end_ns, y)
        whole -= min(2.0, whole / 4)  # neighbours stay apart
        _, _, waited = self._place(c.start_ns, c.arrived_ns, y)
        return svg.box(x, y, whole, _LANE, f"url(#{hatch})", stroke=self.colour, tip=tip) + svg.box(
            x + waited, y, whole - waited, _LANE, self.colour, tip=tip
        )


def _lanes(
    collectives: Sequence[traces.Collective],
) -> list[list[tuple[int, traces.Collective]]]:
    """Rows in which no two collectives overlap, each with its number in the order of starts."""
    lanes: list[list[tuple[int, traces.Collective]]] = []
    for i, collective in enumerate(sorted(collectives, key=lambda c: c.start_ns)):
        for lane in lanes:
            if lane[-1][1].end_ns <= collective.start_ns:
                lane.append((i, collective))
                break
        else:
            lanes.append([(i, collective)])
    return lanes


def _legend() -> str:
    hatch = svg.unique("wait")
    return svg.legend(
        (
            (svg.STRONG, "none", 12, "computing in backward"),
            (svg.PALE, "none", 12, "computing in another part"),
            (svg.PAPER, svg.SHADE, 12, "not computing"),
            (f"url(#{hatch})", svg.QUIET, 9, "collective waits for another rank"),
            (svg.QUIET, svg.QUIET, 9, "collective moves data"),
            (svg.BAD, "none", 3, "exposed: not hidden behind computing"),
        ),
        patterns=svg.hatch(hatch, svg.QUIET),
    )


_COLUMNS = 80
_TEXT_LEGEND = (
    "f forward, b backward, o optimizer, · computing in another part; "
    "░ a collective waits, █ it moves data"
)


def _text_band(rank: traces.RankStep, start_ns: int, end_ns: int) -> str:
    scale = _COLUMNS / max(end_ns - start_ns, 1)
    rows = [[" "] * _COLUMNS, [" "] * _COLUMNS]

    def fill(row: int, start: int, end: int, sign: str) -> None:
        first = int((start - start_ns) * scale)
        for i in range(first, min(max(int((end - start_ns) * scale), first + 1), _COLUMNS)):
            rows[row][i] = sign

    for start, end in rank.outside:
        fill(0, start, end, "·")
    for span in rank.spans:
        fill(0, span.start_ns, span.end_ns, span.name[0])
    for c in sorted(rank.collectives, key=lambda c: c.arrived_ns):
        if c.arrived_ns > c.start_ns:
            fill(1, c.start_ns, c.arrived_ns, "░")
        fill(1, c.arrived_ns, c.end_ns, "█")
    top, bottom = ("".join(row) for row in rows)
    return f"rank {rank.rank:<3}|{top}|\n        |{bottom}|"
