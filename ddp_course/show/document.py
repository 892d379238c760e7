"""What shows itself: a document is written once and drawn as plain text or as HTML.

    @dataclass(frozen=True, repr=False)
    class Greeting(Shown):
        name: str

        def document(self) -> Document:
            return Document(
                Title(f"Hello {self.name}"),
                "A string is a line of text.",
                Line(Rank(0), "waits for", Rank(1)),
                Table(("rank", "wait ms"), [(Rank(0), "1.5")]),
                Fold("evidence", "a line", Listing("what a rank printed")),
                Note("A line that may be overlooked."),
            )

`Shown` gives the class `str()`, `repr()` and a notebook's HTML with equal content; `repr=False`
stops the dataclass from writing a `repr` of its own. Pass plain text everywhere: it is escaped
here. `*other.document().blocks` puts one document into another.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Protocol, TypeAlias

# Okabe and Ito (2008), "Color Universal Design", without its black and yellow, which vanish in one
# of the two themes; the last two are from Paul Tol's "muted" scheme. Each with its ink.
_RANKS = (
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
    ("#d55e00", "#ffffff"),
    ("#999933", "#000000"),
    ("#882255", "#ffffff"),
)

SIGNS = {
    "queued": "◷", "starting": "○", "waiting": "○", "running": "●", "blocked": "◔",
    "paused": "‖", "done": "✓", "finished": "✓", "failed": "✗", "killed": "✗", "stopped": "■",
    "time-out": "✗",
}  # fmt: skip


def rank_colour(rank: int) -> str:
    """The colour of a rank, everywhere; from rank 8 on they repeat."""
    return _RANKS[rank % len(_RANKS)][0]


def rank_ink(rank: int) -> str:
    """The colour of letters on a rank's colour."""
    return _RANKS[rank % len(_RANKS)][1]


def percent(share: float | None) -> str:
    """0.824 → "82 %"; a dash where there is nothing to share."""
    return "–" if share is None else f"{100 * share:.0f} %"


def counted(number: int, what: str = "rank") -> str:
    """ "1 rank", "2 ranks", "3 micro-batches"."""
    plural = "es" if what.endswith(("ch", "s", "x")) else "s"
    return f"{number} {what}{plural * (number != 1)}"


# Pieces of a line


class Piece(Protocol):
    """A part of a line, or a cell of a table, that is more than words."""

    def text(self) -> str: ...
    def html(self) -> str: ...


Words: TypeAlias = "str | Piece"


@dataclass(frozen=True)
class Rank:
    """The name of a rank on its colour; None is torchrun itself."""

    number: int | None

    def text(self) -> str:
        return "torchrun" if self.number is None else f"rank {self.number}"

    def html(self) -> str:
        if self.number is None:
            return '<span class="ddpc-badge ddpc-agent">torchrun</span>'
        colour, ink = _RANKS[self.number % len(_RANKS)]
        name = f"rank&nbsp;{self.number}"
        return f'<span class="ddpc-badge" style="background:{colour};color:{ink}">{name}</span>'


@dataclass(frozen=True)
class State:
    """A state as sign and word: "● running"; `said` replaces the word: "✗ killed (-9)"."""

    name: str
    said: str = ""

    def text(self) -> str:
        return f"{SIGNS.get(self.name, '·')} {self.said or self.name}"

    def html(self) -> str:
        name = self.name if self.name in SIGNS else "other"
        return f'<span class="ddpc-state ddpc-{name}">{escape(self.text())}</span>'


@dataclass(frozen=True)
class Strong:
    """Words that stand out; bad=True: something is wrong with them."""

    words: str
    bad: bool = False

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        look = ' class="ddpc-failed"' if self.bad else ""
        return f"<b{look}>{escape(self.words)}</b>"


@dataclass(frozen=True)
class Label:
    """What the rest of the line is: "WHAT TO DO:" in plain text, bold in HTML."""

    words: str
    kind: str = ""

    def text(self) -> str:
        return f"{self.words.upper()}{self.kind and f' ({self.kind})'}:"

    def html(self) -> str:
        return f"<b>{escape(self.words)}{self.kind and f' ({escape(self.kind)})'}:</b>"


@dataclass(frozen=True)
class Code:
    """A short piece of code, a file's name, a command."""

    words: str

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        return f"<code>{escape(self.words)}</code>"


@dataclass(frozen=True)
class Link:
    """Words that lead to an address; plain text gives the words."""

    words: str
    address: str

    def text(self) -> str:
        return self.words

    def html(self) -> str:
        return f'<a href="{escape(self.address)}">{escape(self.words)}</a>'


def _text(words: Words) -> str:
    return words if isinstance(words, str) else words.text()


def _html(words: Words) -> str:
    return escape(words) if isinstance(words, str) else words.html()


def _cell(words: Words) -> str:
    """A number is not parted from its unit."""
    whole = isinstance(words, str) and _WITH_UNIT.fullmatch(words)
    return f'<span class="ddpc-whole">{_html(words)}</span>' if whole else _html(words)


def _width(text: str) -> int:
    """Columns of a terminal: two for each East Asian wide letter, none for a combining mark."""
    return sum(
        (unicodedata.east_asian_width(letter) in "WF") + 1
        for letter in text
        if unicodedata.category(letter) not in ("Mn", "Me", "Cf")
    )


def _padded(text: str, width: int, right: bool) -> str:
    gap = " " * (width - _width(text))
    return gap + text if right else text + gap


# Blocks


class Line:
    """Pieces of a line, with a blank between them. look: "", "title", "large" or "quiet"."""

    def __init__(self, *pieces: Words, look: str = "") -> None:
        self.pieces, self.look = pieces, look

    def text(self) -> str:
        return " ".join(map(_text, self.pieces))

    def html(self) -> str:
        look = f" ddpc-{self.look}" if self.look else ""
        return f'<div class="ddpc-text{look}">{" ".join(map(_html, self.pieces))}</div>'


def Title(*pieces: Words) -> Line:
    """The one thing that a view says."""
    return Line(*pieces, look="title")


def Note(*pieces: Words) -> Line:
    """A line that explains, in quiet letters."""
    return Line(*pieces, look="quiet")


_WITH_UNIT = re.compile(r"[-+−]?[\d.,]+ (ms|s|kB|MB|GB|%)")
_NUMBER = re.compile(r"[-+−–×#]?(\d|inf|nan|$)")


@dataclass(frozen=True)
class Table:
    """Rows of cells. A column of numbers ends where its head ends, one of words begins with it."""

    head: Sequence[Words]  # empty: a table without a head
    rows: Sequence[Sequence[Words]]

    def text(self) -> str:
        lines = [[_text(cell) for cell in row] for row in self._lines()]
        columns = list(zip(*lines, strict=True))
        widths = [max(map(_width, column)) for column in columns]
        right = self._right()
        return "\n".join(
            "  ".join(
                _padded(cell, width, number)
                for cell, width, number in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        )

    def html(self) -> str:
        right = [' class="ddpc-right"' if number else "" for number in self._right()]
        lines = [
            "".join(f"<{tag}{r}>{_cell(c)}</{tag[:2]}>" for c, r in zip(row, right, strict=True))
            for tag, rows in (('th scope="col"', self._head()), ("td", self.rows))
            for row in rows
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f'<div class="ddpc-wide"><table class="ddpc-table">{body}</table></div>'

    def _head(self) -> list[Sequence[Words]]:
        return [self.head] if self.head else []

    def _lines(self) -> list[Sequence[Words]]:
        return [*self._head(), *self.rows]

    def _right(self) -> list[bool]:
        columns = zip(*self.rows, strict=True) if self.rows else [[] for _ in self.head]
        texts = [[_text(cell) for cell in column] for column in columns]
        return [any(cells) and all(map(_NUMBER.match, cells)) for cells in texts]


@dataclass(frozen=True)
class Listing:
    """A text whose line ends count: output, a traceback, or, with language="python", code."""

    source: str
    language: str = ""

    def text(self) -> str:
        return self.source

    def html(self) -> str:
        lines = coloured(self.source) if self.language else [escape(self.source)]
        look = "ddpc-listing ddpc-script" if self.language else "ddpc-listing"
        return f'<pre class="{look}">' + "\n".join(lines) + "</pre>"


def coloured(source: str) -> list[str]:
    """The lines of a Python text as HTML, in the colours of JupyterLab's editor (style.css)."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lexer = PythonLexer(stripnl=False, ensurenl=False)
    formatter = HtmlFormatter(nowrap=True, classprefix="ddpc-py-")
    lines = source.splitlines()
    shown: str = highlight("\n".join(lines), lexer, formatter)
    return shown.split("\n")[: len(lines)]


class Fold:
    """Blocks behind a summary that opens them; in plain text they are indented below it.

    plain: what plain text shows instead, where the whole would be too much.
    """

    def __init__(
        self,
        summary: str,
        *blocks: Block,
        opened: bool = False,
        plain: Sequence[Block] | None = None,
    ) -> None:
        self.summary, self.blocks, self.opened = summary, blocks, opened
        self.plain = blocks if plain is None else plain

    def text(self) -> str:
        told = _plain(self.plain).splitlines()
        return "\n".join([self.summary, *(f"  {line}".rstrip() for line in told)]) if told else ""

    def html(self) -> str:
        openly = " open" if self.opened else ""
        inside = "".join(map(_block, self.blocks))
        return f"<details{openly}><summary>{escape(self.summary)}</summary>{inside}</details>"


@dataclass(frozen=True)
class Figure:
    """A drawing: HTML or SVG that the caller has escaped, and its twin in letters."""

    drawn: str
    letters: str

    def text(self) -> str:
        return self.letters

    def html(self) -> str:
        return self.drawn


Block: TypeAlias = "str | Line | Table | Listing | Fold | Figure"  # a string is a line of text


def _block(block: Block) -> str:
    if isinstance(block, str):
        return Line(block).html() if block else ""  # "" is an empty line of plain text only
    return block.html()


def _plain(blocks: Sequence[Block]) -> str:
    texts = [(block, _text(block)) for block in blocks]
    return "\n".join(text for block, text in texts if text or block == "")


class Document:
    """Blocks from top to bottom. name: a class of the HTML, for those who look for it."""

    def __init__(self, *blocks: Block, name: str = "") -> None:
        self.blocks, self.name = blocks, name

    def text(self) -> str:
        return _plain(self.blocks)

    def html(self) -> str:
        """With the style sheet: each output of a notebook is a page of its own."""
        return page(self.body())

    def body(self) -> str:
        """For a place that has the style sheet already."""
        return (
            f'<div class="{f"ddpc {self.name}".strip()}">{"".join(map(_block, self.blocks))}</div>'
        )


class Shown:
    """Base of what shows itself: a subclass says what in `document`."""

    def document(self) -> Document:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.document().text()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.document().html()


@cache
def style() -> str:
    """The style sheet as an HTML element. All of its names begin with ddpc-."""
    return f"<style>{Path(__file__).with_name('style.css').read_text(encoding='utf-8')}</style>"


def page(body: str) -> str:
    """HTML with the style sheet that it needs."""
    return style() + body
