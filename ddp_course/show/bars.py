"""bars("loss"): one reported number of every rank, as bars. parts(…): several of one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddp_course.errors import NoEvidence
from ddp_course.show import chart
from ddp_course.show.document import Document, Figure, Shown, Title, rank_colour

if TYPE_CHECKING:
    from ddp_course.run.run import Run


def bars(metric: str, unit: str = "") -> Callable[[Run], Bars]:
    """A view for `explore`, or for a run: `bars("loss")(run)` draws the last loss of each rank.

    The view raises NoEvidence if no rank logged a number of that name.
    """

    def view(run: Run) -> Bars:
        values: dict[int | str, float] = {
            rank: float(value)
            for rank, value in sorted(run.by_rank(metric).items())
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        if not values:
            raise NoEvidence(
                f"No rank of {run.job} logged a number named {metric!r}.",
                cause="a different name, or the run ended before it was logged",
                action="see run.metrics, and run.failure if it failed",
            )
        return Bars(f"{metric} of each rank, {run.job}", values, unit)

    return view


def parts(*metrics: str, unit: str = "ms", rank: int = 0) -> Callable[[Run], Bars]:
    """A view of one rank's numbers: `parts("compute_ms", "wait_ms")(run)` draws a bar for each.

    The unit is left out of the bars' names. The view raises NoEvidence for a name that was not
    reported.
    """

    def view(run: Run) -> Bars:
        values: dict[int | str, float] = {
            metric.removesuffix(f"_{unit}").replace("_", " "): float(run.value(metric, rank))
            for metric in metrics
        }
        return Bars(f"rank {rank} of {run.job}", values, unit)

    return view


@dataclass(frozen=True, repr=False)
class Bars(Shown):
    """One bar a rank (or a word), drawn; `values` are its numbers."""

    title: str
    values: Mapping[int | str, float]
    unit: str = ""

    @property
    def alt(self) -> str:
        """The figure in words."""
        said = ", ".join(f"{_name(key)} {self._number(v)}" for key, v in self.values.items())
        return f"{self.title}: {said}"

    @property
    def svg(self) -> str:
        names = list(map(_name, self.values))
        ranks = [key if isinstance(key, int) else i for i, key in enumerate(self.values)]
        values = list(self.values.values())
        said = list(map(self._number, values))
        return chart.bars(names, values, said, list(map(rank_colour, ranks)), alt=self.alt)

    def document(self) -> Document:
        return Document(Title(self.title), self.figure())

    def figure(self) -> Figure:
        """The bars without their title."""
        largest = max(map(abs, self.values.values())) or 1.0
        wide = max(len(_name(key)) for key in self.values)
        rows = [
            f"{_name(key).ljust(wide)}  {'█' * round(30 * abs(v) / largest)} {self._number(v)}"
            for key, v in self.values.items()
        ]
        return Figure(self.svg, "\n".join(rows))

    def _number(self, value: float) -> str:
        digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        return f"{digits} {self.unit}".rstrip()


def _name(key: int | str) -> str:
    return f"rank {key}" if isinstance(key, int) else key
