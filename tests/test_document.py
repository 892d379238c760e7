"""One document, two renderers: equal content, everything escaped, nothing that a page shares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

import pytest

from ddp_course.show.document import (
    Code,
    Document,
    Figure,
    Fold,
    Line,
    Link,
    Listing,
    Note,
    Rank,
    Shown,
    State,
    Strong,
    Table,
    Title,
    coloured,
    rank_colour,
    style,
)

EVIL = "<script>alert('x')</script>&<b>"


@dataclass(frozen=True, repr=False)
class Everything(Shown):
    word: str

    def document(self) -> Document:
        return Document(
            Title(self.word, "title"),
            self.word,
            Line(Rank(3), State("killed", f"killed {self.word}"), Code(self.word)),
            Line(Strong(self.word, bad=True), Link(self.word, self.word)),
            Table(("rank", self.word), [(Rank(0), self.word), (Rank(11), "")]),
            Fold(self.word, self.word, Listing(self.word), Table((), [(self.word,)])),
            Listing(f"x = 1  # {self.word}", "python"),
            Figure("<svg></svg>", "in letters"),
            Note(self.word),
        )


def words(html: str) -> list[str]:
    """What a reader of the page reads, as words."""
    shown = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", shown)).replace("\xa0", " ").split()


def test_both_renderers_say_the_same_and_escape_it() -> None:
    shown = Everything("plain-word")
    assert words(shown._repr_html_()) == str(shown).replace("in letters", "").split()
    assert repr(shown) == str(shown)
    hostile = Everything(EVIL)._repr_html_()
    assert "<script" not in hostile and "<b>" not in hostile.replace('<b class="ddpc-failed">', "")
    assert EVIL in str(Everything(EVIL))


def test_numbers_are_right_aligned_and_words_left() -> None:
    table = Table(("rank", "wait ms", "what"), [(Rank(0), "1.5", "waits"), (Rank(1), "10.0", "–")])
    assert table.text().splitlines() == [
        "rank    wait ms  what",
        "rank 0      1.5  waits",
        "rank 1     10.0  –",
    ]
    assert table.html().count("ddpc-right") == 3
    assert Table(("a", "b"), []).text() == "a  b"


def test_a_fold_may_say_less_in_plain_text() -> None:
    fold = Fold("all of it", Listing("long"), plain=["short"])
    assert fold.text() == "all of it\n  short"
    assert words(fold.html()) == ["all", "of", "it", "long"]


def test_an_empty_string_is_an_empty_line_of_plain_text() -> None:
    document = Document("a", "", "b", name="mine")
    assert document.text() == "a\n\nb"
    assert document.body().count("<div") == 3 and 'class="ddpc mine"' in document.body()


def test_ranks_differ_by_colour_and_by_name() -> None:
    assert len({rank_colour(rank) for rank in range(8)}) == 8
    assert "rank&nbsp;11" in Rank(11).html() and rank_colour(3) in Rank(3).html()
    assert Rank(None).text() == "torchrun" and "torchrun" in Rank(None).html()
    assert "✗ killed" in State("killed").html() and "&lt;script" in State(EVIL).html()


@pytest.mark.parametrize("source", ["if x:\n  y\n z\n", "'''open", "(", "", "\x0c\n\nx = 1"])
def test_colouring_keeps_every_line_and_character(source: str) -> None:
    lines = coloured(source)
    assert len(lines) == len(source.splitlines())
    assert words("".join(lines)) == words("".join(source.split())) or "".join(
        words("".join(lines))
    ) == "".join(source.split())


def test_names_of_the_style_sheet_are_our_own_and_colours_follow_the_theme() -> None:
    """Two notebooks and JupyterLab itself share the page."""
    narrow = re.sub(r"@media [^{]*\{((?:[^{}]*\{[^}]*\})*)\s*\}", r"\1", style())
    rules = re.sub(r"\{[^}]*\}", "{}", narrow)
    for rule in rules.removeprefix("<style>").split("{}"):
        for selector in filter(None, (part.strip() for part in rule.split(","))):
            assert selector.startswith((".ddpc", "</style>")), selector
    assert "#" not in re.sub(r"var\(--jp-[a-z0-9-]+, #[0-9a-f]{3,6}\)", "", style())
