"""Lanes on a time axis, as SVG text: a few shapes, an axis, a legend.

The page's own CSS variables colour the figure, so it follows JupyterLab's light and dark theme, and
drawing costs milliseconds and no import. Charts of quantities are matplotlib's (chart.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from uuid import uuid4

from ddp_course.show.document import rank_colour

TEXT = "var(--jp-content-font-color1, #212121)"
QUIET = "var(--jp-content-font-color2, #616161)"
PAPER = "var(--jp-layout-color1, #ffffff)"
TINT = "var(--jp-layout-color2, #eeeeee)"
SHADE = "var(--jp-layout-color3, #bdbdbd)"
PALE = f"color-mix(in srgb, {SHADE} 55%, {TINT})"
STRONG = f"color-mix(in srgb, {SHADE} 88%, {TEXT})"
LINE = "var(--jp-border-color1, #bdbdbd)"
BAD = "var(--jp-error-color1, #d32f2f)"

WIDTH = 800.0
RIGHT = 790.0  # where time ends
ROW_TEXT = 15.0  # from the top of a row to the base line of its text


def unique(name: str) -> str:
    """An id that no other figure of the page has, whichever kernel drew it."""
    return f"ddpc-{name}-{uuid4().hex}"


def figure(height: float, body: str, *, alt: str, width: float = WIDTH) -> str:
    """The whole figure; alt says in words what it shows. A narrow page scrolls it."""
    return (
        f'<div class="ddpc-wide"><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'class="ddpc-lanes-svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'aria-label="{escape(alt)}"><title>{escape(alt)}</title>{body}</svg></div>'
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
) -> str:
    """A rectangle, at least half a unit wide so that it can be seen; tip appears on hovering."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.2f}" y="{y:g}" width="{max(width, 0.5):.2f}" height="{height:g}" '
        f'style="fill:{fill};stroke:{stroke}">{title}</rect>'
    )


def text(
    x: float, y: float, words: str, *, size: float = 12, anchor: str = "start", fill: str = TEXT,
    weight: int = 400,
) -> str:  # fmt: skip
    """One line of text; y is its base line. It lets the pointer through to the shape below."""
    return (
        f'<text x="{x:.2f}" y="{y:g}" text-anchor="{anchor}" pointer-events="none" '
        f'style="fill:{fill};font-size:{size:g}px;font-weight:{weight}">{escape(words)}</text>'
    )


def hatch(name: str, colour: str) -> str:
    """A pattern of slanted stripes, to be used as fill `url(#name)`; seen on both grounds."""
    colour = f"color-mix(in srgb, {colour} 75%, {TEXT})"
    return (
        f'<pattern id="{name}" patternUnits="userSpaceOnUse" width="5" height="5" '
        f'patternTransform="rotate(45)"><rect width="2" height="5" style="fill:{colour}"/>'
        "</pattern>"
    )


def rank_label(rank: int, y: float, height: float) -> str:
    """The rank's name beside its stripe of colour."""
    stripe = box(0, y, 4, height, rank_colour(rank))
    return stripe + text(10, y + ROW_TEXT, f"rank {rank}", size=13, weight=600)


def ticks(largest: float, about: int = 8) -> list[float]:
    """Round numbers 0 … largest, about so many."""
    if largest <= 0:
        return [0.0]
    raw = largest / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw)
    return [i * step for i in range(int(largest / step + 1e-9) + 1)]


def time_axis(left: float, top: float, bottom: float, length_ms: float) -> str:
    """Vertical lines at round times, with their numbers below."""
    marks = []
    for time_ms in ticks(length_ms):
        x = left + (RIGHT - left) * time_ms / length_ms if length_ms else left
        marks.append(
            f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top:g}" y2="{bottom:g}" '
            f'style="stroke:{LINE};stroke-width:0.6"/>'
        )
        label = f"{time_ms:g} ms" if time_ms == 0 else f"{time_ms:g}"
        marks.append(text(x, bottom + 14, label, size=11, anchor="middle", fill=QUIET))
    return "".join(marks)


def legend(entries: Sequence[tuple[str, str, float, str]], *, patterns: str = "") -> str:
    """What each look means: (fill, stroke, height of the sample, words) for each."""
    samples = []
    for fill, stroke, height, words in entries:
        sample = box(1, 7 - height / 2, 22, height, fill, stroke=stroke)
        sample += patterns * fill.startswith("url(")
        drawn = f'<svg width="24" height="14" aria-hidden="true">{sample}</svg>'
        samples.append(f"<span>{drawn} {escape(words)}</span>")
    return f'<div class="ddpc-legend">{"".join(samples)}</div>'
