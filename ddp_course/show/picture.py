"""picture("ring"): a drawing of an idea, in panels that stand side by side or, on a phone, stacked.

The drawings are in drawings.py, their words in pictures.toml. Each is computed from a little data,
so that no number is placed by hand, and says whether its numbers are measured or a sketch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument
from ddp_course.show.document import Document, Figure, Link, Note, Shown, Title
from ddp_course.show.drawings import PICTURES
from ddp_course.show.shapes import Panel


@dataclass(frozen=True, repr=False)
class Picture(Shown):
    """Panels with a title, the same in words, what its numbers are worth, and a source."""

    title: str
    alt: str
    numbers: str
    source: Link
    panels: Sequence[Panel]
    legend: str = ""  # HTML

    def document(self) -> Document:
        drawn = "".join(panel.html() for panel in self.panels)
        frame = f'<div class="ddpc-picture" role="img" aria-label="{escape(self.alt)}">'
        return Document(
            Title(self.title),
            Figure(f"{frame}{drawn}</div>{self.legend}", self.alt),
            Note(self.numbers, "Source:", self.source),
        )


def picture(name: str) -> Picture:
    """The picture of this name. Raises BadArgument, with the names that there are."""
    if name not in PICTURES:
        raise BadArgument(
            f"There is no picture {name!r}.", action=f"choose one of {', '.join(PICTURES)}"
        )
    said = _words()[name]
    alt = " ".join(said["alt"].split())
    return Picture(said["title"], alt, said["numbers"], Link(*said["source"]), *PICTURES[name]())


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("pictures.toml").read_text(encoding="utf-8"))
