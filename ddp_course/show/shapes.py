"""What the pictures are drawn with: panels, boxes with words, arrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from ddp_course.show import svg
from ddp_course.show.document import rank_colour, rank_ink


@dataclass(frozen=True)
class Panel:
    """One frame of a picture, in units that are pixels where the page has room."""

    caption: str
    width: float
    height: float
    body: str  # SVG

    def html(self) -> str:
        head = f"<b>{escape(self.caption)}</b>" if self.caption else ""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        drawn = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{self.body}</svg>'
        return f'<div style="width:{self.width:g}px">{head}{drawn}</div>'


Drawn: TypeAlias = tuple[Sequence[Panel], str]  # and a legend


def framed(
    x: float, y: float, width: float, height: float, *lines: str, fill: str = "none",
    ink: str = svg.TEXT, size: float = 12, bold: bool = False, edge: str = svg.STRONG,
) -> str:  # fmt: skip
    """A box with lines of text in its middle."""
    first = y + height / 2 - (len(lines) - 1) * (size + 3) / 2 + size * 0.36
    words = [
        svg.text(
            x + width / 2, first + i * (size + 3), line, size=size, anchor="middle", fill=ink,
            weight=600 if bold and i == 0 else 400,
        )
        for i, line in enumerate(lines)
    ]  # fmt: skip
    return svg.box(x, y, width, height, fill, stroke=edge) + "".join(words)


def of_rank(x: float, y: float, width: float, height: float, rank: int, *lines: str) -> str:
    """A box in the colour of a rank, with its name and further lines."""
    name = lines or (f"rank {rank}",)
    return framed(x, y, width, height, *name, fill=rank_colour(rank), ink=rank_ink(rank), bold=True)


def arrow(*points: tuple[float, float], colour: str = svg.TEXT) -> str:
    """A line through these points, with a head at the last."""
    (x0, y0), (x, y) = points[-2:]
    long = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
    dx, dy = 6 * (x - x0) / long, 6 * (y - y0) / long
    path = " ".join(f"{px:g},{py:g}" for px, py in (*points[:-1], (x - dx, y - dy)))
    sides = ((x, y), (x - dx - dy / 2, y - dy + dx / 2), (x - dx + dy / 2, y - dy - dx / 2))
    head = " ".join(f"{px:.4g},{py:.4g}" for px, py in sides)
    return (
        f'<polyline points="{path}" style="fill:none;stroke:{colour};stroke-width:1.5"/>'
        f'<polygon points="{head}" style="fill:{colour}"/>'
    )
