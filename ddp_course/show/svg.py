"""Figures as SVG text: a few shapes, an axis, and the numbers that it shows.

The page's own CSS variables colour the figure, so it follows JupyterLab's theme, and drawing costs
milliseconds and no import; both are out of reach for a picture of pixels.
"""

from __future__ import annotations

import math
from html import escape
from itertools import count

from ddp_course.show.style import LINE, QUIET, TEXT

_NUMBER = count()


def unique(name: str) -> str:
    """An id that no other figure of the page has."""
    return f"ddpc-{name}-{next(_NUMBER)}"


def figure(width: float, height: float, body: str, *, alt: str) -> str:
    """The whole figure; alt says in words what it shows."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" role="img" aria-label="{escape(alt)}"><title>{escape(alt)}</title>'
        f"{body}</svg>"
    )


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    *,
    tip: str = "",
    stroke: str = "none",
    radius: float = 0,
) -> str:
    """A rectangle, at least half a unit wide so that it can be seen; tip appears on hovering."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.2f}" y="{y:g}" width="{max(width, 0.5):.2f}" height="{height:g}" '
        f'rx="{radius:g}" style="fill:{fill};stroke:{stroke}">{title}</rect>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 12,
    anchor: str = "start",
    fill: str = TEXT,
    weight: int = 400,
) -> str:
    """One line of text; y is its base line. It lets the pointer through to the shape below."""
    return (
        f'<text x="{x:.2f}" y="{y:g}" text-anchor="{anchor}" pointer-events="none" '
        f'style="fill:{fill};font-size:{size:g}px;font-weight:{weight}">{escape(words)}</text>'
    )


def hatch(name: str, colour: str) -> str:
    """A pattern of slanted stripes, to be used as fill `url(#name)`."""
    return (
        f'<pattern id="{name}" patternUnits="userSpaceOnUse" width="5" height="5" '
        f'patternTransform="rotate(45)"><rect width="2" height="5" style="fill:{colour}"/>'
        "</pattern>"
    )


def vertical(x: float, top: float, bottom: float) -> str:
    return (
        f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top:g}" y2="{bottom:g}" '
        f'style="stroke:{LINE};stroke-width:0.6"/>'
    )


def ticks(largest: float, about: int = 8) -> list[float]:
    """Round numbers 0 … largest, about so many."""
    if largest <= 0:
        return [0.0]
    raw = largest / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw)
    return [i * step for i in range(int(largest / step + 1e-9) + 1)]


def time_axis(left: float, right: float, top: float, bottom: float, length_ms: float) -> str:
    """Vertical lines at round times, with their numbers below."""
    marks = []
    for time_ms in ticks(length_ms):
        x = left + (right - left) * time_ms / length_ms if length_ms else left
        marks.append(vertical(x, top, bottom))
        label = f"{time_ms:g} ms" if time_ms == 0 else f"{time_ms:g}"
        marks.append(text(x, bottom + 14, label, size=11, anchor="middle", fill=QUIET))
    return "".join(marks)
