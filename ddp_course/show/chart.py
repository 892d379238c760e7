"""Charts of quantities, by matplotlib, as SVG that follows the page's theme.

matplotlib is imported when the first chart is drawn: the kernel starts without it. Its Figure is
used without pyplot, whose figures and settings belong to the learner.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ddp_course.show import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stand for the theme's while matplotlib draws.
_THEME = {"#010203": svg.TEXT, "#040506": svg.LINE}
_TEXT, _LINE = _THEME
_WIDTH, _ROW = 7.0, 0.25  # inches, of 100 units each
_NAME, _SAID = 0.076, 0.068  # inches that a letter may take, bold and not


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
