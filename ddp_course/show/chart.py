"""Charts of quantities, by matplotlib, as SVG that follows the page's theme.

matplotlib is imported when the first chart is drawn: the kernel starts without it. Its Figure is
used without pyplot, whose figures and settings belong to the learner.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ddp_course.show import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stand for the theme's while matplotlib draws.
_THEME = {"#010203": svg.TEXT, "#040506": svg.LINE}
_TEXT, _LINE = _THEME
_WIDTH, _ROW = 7.0, 0.25  # inches, of 100 units each
_NAME, _SAID = 0.082, 0.068  # inches that a letter may take, bold and not


def bars(
    names: Sequence[str], values: Sequence[float], said: Sequence[str], colours: Sequence[str],
    *, alt: str,
) -> str:  # fmt: skip
    """A horizontal bar for each value, its name before it and what is said of it behind it."""
    from matplotlib.figure import Figure

    height = _ROW * len(values) + 0.06
    left = max(0.7, _NAME * max(map(len, names)) + 0.06)
    right = _WIDTH - max(1.0, _SAID * max(map(len, said)) + 0.06)
    chart = Figure(figsize=(_WIDTH, height), facecolor="none")
    axes = chart.add_axes((left / _WIDTH, 0.0, (right - left) / _WIDTH, 1.0))
    axes.set_axis_off()
    low, high = min(0.0, *values), max(0.0, *values)
    axes.set_xlim(low, high if high > low else low + 1)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.barh(range(len(values)), values, height=0.66, color=colours)
    axes.axvline(0, color=_LINE, linewidth=1)
    letters: dict[str, Any] = {"size": 9, "va": "center", "color": _TEXT}
    for row, (name, value, words) in enumerate(zip(names, values, said, strict=True)):
        start = axes.transAxes.inverted().transform(axes.transData.transform((value, row)))[0]
        y = (row + 0.5) * _ROW + 0.03
        chart.text(0, 1 - y / height, name, weight="bold", **letters)
        x = left + (right - left) * max(start, -low / ((high - low) or 1)) + 0.06
        chart.text(x / _WIDTH, 1 - y / height, words, **letters)
    return _themed(chart, alt)


Points = Sequence[tuple[float, float]]


def lines(
    series: Mapping[str, Points], colours: Sequence[str], *, x: str, y: str, alt: str,
    fitted: Mapping[str, Points] | None = None, log: bool = False,
) -> str:  # fmt: skip
    """A line for each series, and a legend beside them.

    fitted  further lines, thin and without marks, of the colour of the series of this name
    log     both axes are logarithmic
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    chart = Figure(figsize=(_WIDTH, 2.6), facecolor="none", layout="constrained")
    axes = chart.add_subplot(facecolor="none")
    few = max(map(len, series.values())) <= 12
    for (name, points), colour, dash, mark in zip(
        series.items(), colours, itertools.cycle(("-", "--", "-.", ":")),
        itertools.cycle("os^Dv"), strict=False,
    ):  # fmt: skip
        axes.plot(
            *zip(*points, strict=True), label=name, color=colour, marker=mark if few else "",
            linestyle="" if fitted and name in fitted else dash, linewidth=1.8, markersize=5,
        )  # fmt: skip
        if fitted and name in fitted:
            axes.plot(*zip(*fitted[name], strict=True), color=colour, linewidth=1)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    elif all(float(at).is_integer() for points in series.values() for at, _ in points):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlabel(x, color=_TEXT, size=9)
    axes.set_ylabel(y, color=_TEXT, size=9)
    axes.tick_params(which="both", color=_LINE, labelcolor=_TEXT, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LINE)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelcolor=_TEXT, fontsize=9
    )
    return _themed(chart, alt)


def _themed(chart: Figure, alt: str) -> str:
    """The figure as SVG: text as text, the theme's colours, and ids that no other figure has."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        chart.savefig(written, format="svg")
    # Its style element would be a rule for everything on the page.
    foreign = r"<metadata>.*?</metadata>|<style.*?</style>|font-family: [^;]*;|^.*?(?=<svg)"
    drawn = re.sub(foreign, "", written.getvalue(), flags=re.DOTALL)
    own = svg.unique("chart")
    drawn = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\1{own}-", drawn)
    for colour, theme in _THEME.items():
        drawn = drawn.replace(colour, theme)
    words = escape(alt)
    head = f'<svg class="ddpc-chart" role="img" aria-label="{words}"'
    drawn = re.sub(r"<svg([^>]*)>", rf"{head}\1><title>{words}</title>", drawn, count=1)
    return f'<div class="ddpc-wide">{drawn}</div>'
