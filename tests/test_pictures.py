"""The pictures: true to a model, readable in both themes and on a phone, told in words as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from conftest import ROOT

from ddp_course.errors import BadArgument
from ddp_course.launcher.launch import launch
from ddp_course.show.drawings import COLLECTIVES, PICTURES, held, ring_steps, schedule
from ddp_course.show.ledger import collectives
from ddp_course.show.picture import picture

PHONE = 390 - 2 * 12  # pixels, without the page's margins
THEMES = {  # the greys of JupyterLab's variables
    "light": {"layout-color1": 255, "layout-color2": 238, "layout-color3": 189,
              "content-font-color1": 33, "content-font-color2": 97},
    "dark": {"layout-color1": 17, "layout-color2": 66, "layout-color3": 97,
             "content-font-color1": 255, "content-font-color2": 184},
}  # fmt: skip

Box = tuple[float, float, float, float]  # left, top, right, bottom
Shape = tuple[Box, str, str]  # where, its fill, its words


def shapes(svg: ElementTree.Element) -> Iterator[Shape]:
    """The boxes and the lines of text, from the back to the front."""
    for element in svg:
        look = dict(part.split(":") for part in element.get("style", "").split(";"))
        x, y = (float(element.get(name, 0)) for name in "xy")
        if element.tag.endswith("rect"):
            wide, high = float(element.get("width", 0)), float(element.get("height", 0))
            yield (x, y, x + wide, y + high), look["fill"], ""
        if element.tag.endswith("text"):
            size, words = float(look["font-size"][:-2]), element.text or ""
            wide = size * len(words) * (0.62 if look["font-weight"] == "600" else 0.55)
            left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor", "")]
            yield (left, y - 0.8 * size, left + wide, y + 0.2 * size), look["fill"], words


def panels(name: str) -> list[tuple[Box, list[Shape]]]:
    found = []
    for panel in picture(name).panels:
        svg = ElementTree.fromstring(
            re.sub("^.*?(?=<svg)", "", panel.html()).removesuffix("</div>")
        )
        found.append(((0.0, 0.0, panel.width, panel.height), list(shapes(svg))))
    return found


def inside(one: Box, other: Box) -> bool:
    return (
        one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]
    )  # fmt: skip


def apart(one: Box, other: Box) -> bool:
    return (
        one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    )  # fmt: skip


def luminance(colour: str, theme: dict[str, int]) -> float:
    """That of WCAG 2; of a mixture's parts, the average of their greys."""
    if colour.startswith("#"):
        channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    else:
        greys = [theme[name] for name in re.findall(r"--jp-([a-z0-9-]+)", colour)]
        share = float((re.findall(r"(\d+)%", colour) or ["100"])[0]) / 100
        channels = [round(share * greys[0] + (1 - share) * greys[-1])] * 3
    linear: list[float] = [((value / 255 + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", PICTURES)
def test_words_stay_inside_and_apart(name: str) -> None:
    for frame, drawn in panels(name):
        assert frame[2] <= PHONE
        assert all(inside(box, (-1, -1, frame[2] + 1, frame[3] + 1)) for box, *_ in drawn)
        texts = [(box, words) for box, _, words in drawn if words]
        for i, (one, words) in enumerate(texts):
            assert not [other for box, other in texts[:i] if not apart(one, box)], words
            for box, _, _ in [shape for shape in drawn if not shape[2]]:
                assert apart(one, box) or inside(one, box), f"{words} leaves its box"


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("name", PICTURES)
def test_words_can_be_read_in_both_themes(name: str, theme: dict[str, int]) -> None:
    for _, drawn in panels(name):
        for i, (box, fill, words) in enumerate(drawn):
            if words:
                below = [f for b, f, w in drawn[:i] if not w and f != "none" and inside(box, b)]
                ground = [*["var(--jp-layout-color1)"], *below][-1]
                dark, light = sorted(luminance(one, theme) for one in (fill, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, fill, ground)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_told_in_words_and_says_what_its_numbers_are(name: str) -> None:
    shown = picture(name)
    html = shown._repr_html_()
    assert f'role="img" aria-label="{shown.alt[:20]}' in html
    assert shown.alt in str(shown)
    assert 150 < len(shown.alt) < 700
    assert re.search("measured|computed|sketch", shown.numbers, re.IGNORECASE)
    assert shown.source.address.startswith("https://")
    assert " id=" not in html, "two pictures on a page may not share an id"
    words = " ".join(words for _, drawn in panels(name) for _, _, words in drawn)
    for number in re.findall(r"\d+\.\d(?=[.,]? )", shown.alt.split("times the tensor")[0]):
        assert number in words or name == "ring", f"{number} is told but not drawn"


def test_a_name_that_is_not_there_is_told_the_others() -> None:
    with pytest.raises(BadArgument, match=r"choose one of .*ring"):
        picture("rings")


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_the_ring_ends_with_all_sums_on_all_ranks(ranks: int) -> None:
    steps = [cells for cells, _ in ring_steps(ranks)]
    total = sum(10**rank for rank in range(ranks))
    assert steps[-1] == [[total] * ranks] * ranks
    assert len(steps) == 2 * (ranks - 1)
    assert [row.count(total) for row in steps[ranks - 2]] == [1] * ranks, "a reduce-scatter"


@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (3, 4), (4, 3)])
def test_1f1b_takes_as_long_as_gpipe_and_holds_less(stages: int, batches: int) -> None:
    gpipe = schedule(stages, batches, lambda stage: batches)
    one_f = schedule(stages, batches, lambda stage: stages - stage)
    for lanes in (gpipe, one_f):
        assert lanes[0][-1] == ("B", batches - 1, 3 * (batches + stages - 1) - 2.0)
        assert [len(lane) for lane in lanes] == [2 * batches] * stages
    assert [held(lane) for lane in gpipe] == [batches] * stages
    assert [held(lane) for lane in one_f] == [min(batches, stages - s) for s in range(stages)]


def test_the_collectives_are_those_of_the_job() -> None:
    run = launch("show_collectives", ranks=3)
    for name, (_, after) in COLLECTIVES.items():
        job = re.split(r"[ (]", name)[0].replace("-", "_")
        wanted = {rank: [value for value in row if value] for rank, row in enumerate(after)}
        assert run.by_rank(job) == wanted


@pytest.mark.parametrize("way", ["root", "gather", "ring", "built_in"])
def test_a_sum_by_hand_is_right_and_sends_what_the_lesson_says(way: str) -> None:
    run = launch("sum_by_hand", ranks=4, way=way)
    assert max(run.by_rank("distance").values()) < 1e-5
    mib, piece = 2**20, 2**18
    assert collectives(run).sent == {
        "root": {0: (3, 3 * mib), **dict.fromkeys((1, 2, 3), (1, mib))},
        "gather": dict.fromkeys(range(4), (3, 3 * mib)),
        "ring": dict.fromkeys(range(4), (6, 6 * piece)),
        "built_in": dict.fromkeys(range(4), (0, 0)),
    }[way]  # fmt: skip
    assert (max(run.by_rank("differing").values()) > 0) == (way == "gather")


@pytest.mark.parametrize(("first", "ok"), [("send", False), ("turns", True), ("isend", True)])
def test_a_ring_in_which_all_send_first_stands_still(first: str, ok: bool) -> None:
    run = launch("wrong_ring_order", ranks=4, first=first)
    assert run.ok is ok
    if ok:
        assert run.by_rank("received") == {0: 3, 1: 0, 2: 1, 3: 2}


def test_every_picture_is_in_a_lesson() -> None:
    lessons = "".join(path.read_text() for path in (ROOT / "notebooks" / "src").glob("*.py"))
    assert set(re.findall(r'picture\("(\w+)"\)', lessons)) == PICTURES.keys()
