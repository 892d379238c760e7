"""Lesson 14: what its job and its page must hold, whatever is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_course import attempts, collectives, differences, launch, write_page
from ddp_course.errors import BadArgument
from ddp_course.run.run import Run

GRADIENTS = 9930 * 58  # numbers that two epochs send: one for each weight and step


@pytest.fixture(scope="module")
def alone() -> Run:
    return launch("train_convnet", ranks=1, epochs=2)


def test_ranks_that_were_killed_end_where_one_process_ends(alone: Run) -> None:
    run = launch("train_convnet", ranks=4, restarts=1, epochs=2, pause_ms=20.0, wait=False)
    run.wait_for_step(7)
    run.kill(3)
    assert attempts(run).restarts == 1 and attempts(run).repeated > 0
    assert differences({"": run}, alone).words[""] == "equal up to rounding"
    assert run.value("accuracy") == alone.value("accuracy") > 0.9
    assert run.value("test_images") == 360


def test_a_lost_node_changes_the_world_and_not_the_result(alone: Run) -> None:
    run = launch(
        "train_convnet", ranks=1, nodes=2, restarts=3, epochs=2, pause_ms=20.0, wait=False
    ).wait_for_step(12)
    run.lose_node()
    assert run.value("worlds") == [2, 1]
    assert differences({"": run}, alone).values[""] < 1e-5


@pytest.mark.parametrize(
    ("compress", "kind", "size"), [(False, "float32", 4), (True, "bfloat16", 2)]
)
def test_compression_halves_what_is_handed_over(compress: bool, kind: str, size: int) -> None:
    run = launch("train_convnet", ranks=2, epochs=2, compress=compress)
    sent = collectives(run).bytes_handed(kind)
    broadcast = 0 if compress else 9930 * 4  # of the weights, before the first step
    assert sent == GRADIENTS * size + broadcast
    assert run.value("accuracy") > 0.9


def test_a_page_holds_what_it_is_given_and_nothing_else_is_overwritten(
    tmp_path: Path, alone: Run
) -> None:
    path = tmp_path / "mine.html"
    write_page(path, "1 < 2", "# Results", "said & done", differences({"one": alone}, alone))
    page = path.read_text()
    assert "<title>1 &lt; 2</title>" in page and "<h2>Results</h2>" in page
    assert "<p>said &amp; done</p>" in page and "exactly equal" in page
    assert page.count("<style>") == 2, "the course's style once, and the page's own"
    assert "http" not in page.replace('"https://', ""), "it loads nothing"
    write_page(path, "again")
    path.write_text("my own page")
    for name in (path, tmp_path / "mine.txt"):
        with pytest.raises(BadArgument):
            write_page(name, "no")
    assert path.read_text() == "my own page"
