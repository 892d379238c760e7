"""stages(run): which rank of a pipeline computes when, and the share of time in which none does."""

from __future__ import annotations

from dataclasses import dataclass

from ddp_course.errors import NoEvidence
from ddp_course.observe import trace as traces
from ddp_course.observe.trace import Span
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
)
from ddp_course.show.timeline import TracedRun, traced

DEFINITION = (
    "idle: neither in a forward nor in a backward, from the first forward of any rank to the last "
    "backward of any rank. formula: (p − 1) / (m + p − 1) for p stages and m micro-batches, if all "
    "stages take equally long and sending takes no time (Huang et al. 2019)."
)

_LEFT, _TOP, _ROW, _GAP = 80.0, 6.0, 26.0, 8.0
_COLUMNS = 80
_HEAD = ("rank", "forwards", "backwards", "computing ms", "idle ms", "idle")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TEXT_LEGEND = "0 1 2 … the forward of that micro-batch, a b c … its backward, · idle"


def stages(run: TracedRun) -> Stages:
    """Draw the last traced step of a pipeline, a stage for each rank; waits for the run to end.

    The job names its pieces by `span("forward")` and `span("backward")`, one for each micro-batch
    and in their order. Raises NoEvidence if the run was not traced or named no such piece.
    """
    rows = []
    for rank in traces.read(traced(run), host=True)[-1]:
        spans = tuple(s for s in rank.spans if s.name in ("forward", "backward"))
        if not spans:
            raise NoEvidence(
                f"Rank {rank.rank} of {run.job} marked no forward and no backward.",
                cause="the job is not a pipeline, or its stages do not use span()",
                action="timeline(run) draws other jobs",
            )
        rows.append(Row(rank.rank, spans))
    return Stages(run.job, tuple(rows))


@dataclass(frozen=True)
class Row:
    """What one rank computed: the forwards and backwards of its stage."""

    rank: int
    spans: tuple[Span, ...]

    @property
    def busy_ms(self) -> float:
        return traces.length((s.start_ns, s.end_ns) for s in self.spans) / 1e6

    @property
    def numbered(self) -> list[tuple[int, Span]]:
        """Each span with the number of its micro-batch: its place among those of its name."""
        seen = {"forward": 0, "backward": 0}
        found = []
        for span in self.spans:
            found.append((seen[span.name], span))
            seen[span.name] += 1
        return found

    def count(self, name: str) -> int:
        return sum(span.name == name for span in self.spans)


@dataclass(frozen=True, repr=False)
class Stages(Shown):
    """One step of a pipeline, drawn; its numbers are attributes."""

    job: str
    rows: tuple[Row, ...]

    @property
    def micro_batches(self) -> int:
        return max(row.count("forward") for row in self.rows)

    @property
    def step_ms(self) -> float:
        """From the first forward of any rank to the last backward of any rank."""
        return (self._end - self._start) / 1e6

    @property
    def idle_ms(self) -> dict[int, float]:
        return {row.rank: self.step_ms - row.busy_ms for row in self.rows}

    @property
    def bubble(self) -> float:
        """The idle share of all ranks' time, 0…1, as measured."""
        return sum(self.idle_ms.values()) / (len(self.rows) * self.step_ms)

    @property
    def formula(self) -> float:
        """(p − 1) / (m + p − 1): Huang et al., GPipe, 2019, arXiv:1811.06965, section 2.3."""
        p = len(self.rows)
        return (p - 1) / (self.micro_batches + p - 1)

    @property
    def message(self) -> str:
        """The one thing that the figure says."""
        return (
            f"{percent(self.bubble)} of the stages' time is idle; the formula says "
            f"{percent(self.formula)}"
        )

    @property
    def alt(self) -> str:
        """The figure in words."""
        said = ", ".join(f"rank {rank} is idle {ms:.0f} ms" for rank, ms in self.idle_ms.items())
        return f"Pipeline of {self.job}, {self.step_ms:.0f} ms: {said}."

    @property
    def svg(self) -> str:
        scale = (svg.RIGHT - _LEFT) / (self._end - self._start)
        parts, y = [], _TOP
        for row in self.rows:
            frame = svg.box(_LEFT, y, svg.RIGHT - _LEFT, _ROW, "none", stroke=svg.LINE)
            parts += [svg.rank_label(row.rank, y, _ROW), frame]
            for number, span in row.numbered:
                x, width = _LEFT + (span.start_ns - self._start) * scale, span.ms * 1e6 * scale
                tip = f"rank {row.rank}: {span.name} of micro-batch {number}, {span.ms:.1f} ms"
                tone = svg.STRONG if span.name == "backward" else svg.PALE
                parts.append(svg.box(x, y, width, _ROW, tone, stroke=svg.PAPER, tip=tip))
                if width > 14:
                    parts.append(svg.text(x + width / 2, y + 17, str(number), anchor="middle"))
            y += _ROW + _GAP
        axis = svg.time_axis(_LEFT, _TOP, y, self.step_ms)
        return svg.figure(y + 20, axis + "".join(parts), alt=self.alt)

    def document(self) -> Document:
        p, m = counted(len(self.rows), "stage"), counted(self.micro_batches, "micro-batch")
        return Document(
            Title(self.message),
            Note(f"{self.job}: {p}, {m}, one step of {self.step_ms:.0f} ms"),
            Figure(self.svg, "\n".join(f"rank {r.rank:<3}|{self._band(r)}|" for r in self.rows)),
            Figure(svg.legend(_LEGEND), _TEXT_LEGEND),
            Table(_HEAD, [self._cells(row) for row in self.rows]),
            Note(DEFINITION),
        )

    @property
    def _start(self) -> int:
        return min(span.start_ns for row in self.rows for span in row.spans)

    @property
    def _end(self) -> int:
        return max(span.end_ns for row in self.rows for span in row.spans)

    def _cells(self, row: Row) -> list[str | Rank]:
        idle = self.idle_ms[row.rank]
        counts = (str(row.count(name)) for name in ("forward", "backward"))
        times = f"{row.busy_ms:.0f}", f"{idle:.0f}", percent(idle / self.step_ms)
        return [Rank(row.rank), *counts, *times]

    def _band(self, row: Row) -> str:
        scale = _COLUMNS / (self._end - self._start)
        signs = ["·"] * _COLUMNS
        for number, span in row.numbered:
            sign = str(number % 10) if span.name == "forward" else _LETTERS[number % 26]
            first, last = (round((t - self._start) * scale) for t in (span.start_ns, span.end_ns))
            for i in range(first, min(max(last, first + 1), _COLUMNS)):
                signs[i] = sign
        return "".join(signs)


_LEGEND = (
    (svg.PALE, svg.PAPER, 12.0, "forward of a micro-batch, with its number"),
    (svg.STRONG, svg.PAPER, 12.0, "its backward"),
    ("none", svg.LINE, 12.0, "idle"),
)
