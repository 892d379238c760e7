"""bars("loss"): one reported number of every rank, as bars. parts(…): several of one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ddp_course.errors import NoEvidence
from ddp_course.show import svg
from ddp_course.show.style import LINE, page, rank_colour

if TYPE_CHECKING:
    from ddp_course.run.run import Run

_WIDTH, _ROW = 700.0, 24.0
_NAME, _SAID = 7.6, 6.8  # a generous width of a letter, bold and not, of 12 px


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
                cause="another name, or the run ended before it",
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
            metric.removesuffix(f"_{unit}"): float(run.value(metric, rank)) for metric in metrics
        }
        return Bars(f"rank {rank} of {run.job}", values, unit)

    return view


@dataclass(frozen=True)
class Bars:
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
        low, high = min(0.0, *self.values.values()), max(0.0, *self.values.values())
        first = max(70.0, _NAME * max(len(_name(key)) for key in self.values) + 6)
        last = _WIDTH - max(100.0, _SAID * max(len(self._number(v)) for v in self.values.values()))
        scale = (last - first) / ((high - low) or 1.0)
        zero = first - low * scale
        parts = []
        for i, (key, value) in enumerate(self.values.items()):
            y = 4 + i * _ROW
            left, right = sorted((zero, zero + value * scale))
            colour = rank_colour(key if isinstance(key, int) else i)
            parts.append(svg.text(0, y + 15, _name(key), size=12, weight=600))
            parts.append(svg.box(left, y + 2, right - left, _ROW - 8, colour, radius=2))
            parts.append(svg.text(right + 6, y + 15, self._number(value), size=12))
        height = 4 + len(self.values) * _ROW
        parts.append(svg.box(zero - 0.5, 2, 1, height - 4, LINE))
        return svg.figure(_WIDTH, height, "".join(parts), alt=self.alt)

    def _repr_html_(self) -> str:
        title = f'<div class="ddpc-title">{escape(self.title)}</div>'
        return page(f'<div class="ddpc">{title}{self.svg}</div>')

    def __str__(self) -> str:
        largest = max(map(abs, self.values.values())) or 1.0
        wide = max(len(_name(key)) for key in self.values)
        rows = [
            f"{_name(key).ljust(wide)}  {'█' * round(30 * abs(v) / largest)} {self._number(v)}"
            for key, v in self.values.items()
        ]
        return "\n".join([self.title, *rows])

    __repr__ = __str__

    def _number(self, value: float) -> str:
        digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        return f"{digits} {self.unit}".rstrip()


def _name(key: int | str) -> str:
    return f"rank {key}" if isinstance(key, int) else key
