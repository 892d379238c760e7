"""curves({…}, "step", "loss"): what several runs reported in each step, as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_course.errors import BadArgument
from ddp_course.run.run import check_run
from ddp_course.show import chart
from ddp_course.show.document import Document, Figure, Shown, Table, Title, rank_colour

if TYPE_CHECKING:
    from ddp_course.run.run import Run


def curves(runs: Mapping[str, Run], x: str, y: str, *, rank: int = 0) -> Curves:
    """A line for each run: the numbers that `rank` reported together under the names `x` and `y`.

    runs: what to call a run → the run. Waits for all of them to end.
    Raises BadArgument without runs, and NoEvidence if a run did not report both together.
    """
    if not isinstance(runs, Mapping) or not runs:
        raise BadArgument(
            "There is nothing to draw.", action='curves({"mine": run}, "step", "loss")'
        )
    series = {}
    for label, run in runs.items():
        check_run(run)
        run.value(y, rank)  # says what there is, if there is nothing
        told = [m for m in run.metrics if m["rank"] == rank and x in m and y in m]
        series[label] = tuple((float(m[x]), float(m[y])) for m in told)
        if not told:
            run.value(x, rank)
            raise BadArgument(f"{label} reported {x!r} and {y!r}, but not together.")
    return Curves(x, y, series)


@dataclass(frozen=True, repr=False)
class Curves(Shown):
    """Lines of points; in plain text, the first, the lowest and the last value of each."""

    x: str
    y: str
    series: Mapping[str, chart.Points]

    @property
    def title(self) -> str:
        return f"{_words(self.y)} against {_words(self.x)}"

    @property
    def alt(self) -> str:
        """The figure in words."""
        said = "; ".join(
            f"{name}: {p[0][1]:.3g} to {p[-1][1]:.3g}" for name, p in self.series.items()
        )
        return f"{self.title}. {said}"

    def document(self) -> Document:
        colours = [rank_colour(number) for number in range(len(self.series))]
        drawn = chart.lines(self.series, colours, x=_words(self.x), y=_words(self.y), alt=self.alt)
        rows = [
            (name, *(f"{value:.3g}" for value in (p[0][1], min(y for _, y in p), p[-1][1])))
            for name, p in self.series.items()
        ]
        letters = Table(("", "first", "lowest", "last"), rows).text()
        return Document(Title(self.title), Figure(drawn, letters))


def _words(name: str) -> str:
    return name.replace("_", " ")
