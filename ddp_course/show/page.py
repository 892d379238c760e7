"""write_page("report.html", "Mine", …): what a notebook shows, as a page to keep or hand in."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ddp_course import disk
from ddp_course.errors import BadArgument, shown
from ddp_course.show.document import Document, Line, Link, Shown, style

_MARK = '<meta name="generator" content="ddp_course">'
_LOOK = """<style>
body { margin: 2em auto; max-width: 62em; padding: 0 1em; font-family: system-ui, sans-serif; }
pre { white-space: pre-wrap; }
</style>"""


@dataclass(frozen=True, repr=False)
class Page(Shown):
    """Where a page was written."""

    path: Path

    def document(self) -> Document:
        return Document(Line("written to", Link(str(self.path), self.path.name)))


def write_page(path: str | Path, title: str, *parts: Any) -> Page:
    """Write a page of its own: no kernel, no network, nothing beside it.

    parts: from top to bottom, text ("# …" is a heading) and whatever shows itself in a notebook: a
    run, a figure, a revealed prediction, a verdict.
    Raises BadArgument if `path` does not end in .html, or holds a file that is no page of ours.
    """
    target = Path(path)
    if target.suffix != ".html":
        raise BadArgument(f"A page cannot be {shown(path)}.", action='name it "report.html"')
    if target.exists() and _MARK not in target.read_text(encoding="utf-8", errors="replace"):
        raise BadArgument(
            f"{target} holds something else, and is left as it is.", action="choose another name"
        )
    head = f'<meta charset="utf-8">{_MARK}<title>{escape(title)}</title>{style()}{_LOOK}'
    body = "\n".join(map(_html, parts)).replace(style(), "")  # once is enough
    disk.write(
        target,
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n",
    )
    return Page(target)


def _html(part: Any) -> str:
    if isinstance(part, str):
        heading = part.removeprefix("# ")
        return f"<h2>{escape(heading)}</h2>" if heading != part else f"<p>{escape(part)}</p>"
    drawn = getattr(part, "_repr_html_", lambda: None)()
    return drawn if isinstance(drawn, str) else f"<pre>{escape(str(part))}</pre>"
