"""JupyterLab in headless Chromium: a learner's clicks, and what the page then shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, find_tool, needs, tool
from playwright.sync_api import Locator, Page, expect

browse = tool("browse")
SLOW_MS = browse.SLOW_MS
SCREENS = ROOT / "build" / "screens"
LESSON = "00_start_here.ipynb"
CELLS = [
    "from ddp_course import explore, launch, predict",
    "guess = predict('How much is hidden?', choices=['nothing', 'a part', 'all'])",
    "explore('overlap_buckets', ranks=[2, 1], bucket_mb=[1.0, 25.0])",
]

STEP_ENDS_BEFORE_BUTTON = """() => {
  const panel = [...document.querySelectorAll('.ddpc-panel')].pop();
  const step = panel.querySelector('.ddpc-lane-step').getBoundingClientRect();
  const buttons = [...panel.querySelectorAll('button')].map(b => b.getBoundingClientRect());
  const beside = buttons.filter(b => b.top < step.bottom && b.bottom > step.top);
  return step.width > 0 && beside.length && beside.every(b => step.right <= b.left);
}"""

pytestmark = [
    needs("chromium"),
    pytest.mark.timeout(600),
    # pytest-base-url, which pytest-playwright brings, still defines a fixture in this way.
    pytest.mark.filterwarnings("ignore:Session-scoped fixtures defined as instance methods"),
]


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    own = {"executable_path": find_tool("chromium"), "args": browse.CHROMIUM_FLAGS}
    return {**browser_type_launch_args, **own}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_context_args, "viewport": {"width": 1366, "height": 768}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab with a copy of lesson 00 and a notebook of this test's own."""
    notebooks = tmp_path_factory.mktemp("notebooks")
    browse.write_notebook(notebooks / "views.ipynb", CELLS)
    shutil.copy(ROOT / "notebooks" / LESSON, notebooks)
    with browse.jupyterlab(notebooks, tmp_path_factory.mktemp("home")) as address:
        yield address


@pytest.fixture
def views(page: Page, lab: str) -> Page:
    """This test's own notebook, all of its cells run."""
    browse.open_notebook(page, lab, "views.ipynb")
    browse.run_all(page)
    return page


def lane(panel: Locator, rank: int) -> Locator:
    return panel.locator(".ddpc-lane").nth(rank)


def key(page: Page, slider: Locator, name: str) -> None:
    slider.locator(".noUi-handle").focus()
    page.keyboard.press(name)


def screen(page: Page, shown: Locator, name: str) -> None:
    shown.scroll_into_view_if_needed()
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def test_lesson_00(page: Page, lab: str) -> None:
    """Run all, move a slider, pause and kill a rank, as the lesson asks for."""
    browse.open_notebook(page, lab, LESSON)
    browse.run_all(page, limit_ms=5 * SLOW_MS)
    errors = page.locator("[data-mime-type='application/vnd.jupyter.error']")
    assert errors.all_inner_texts() == []

    said, figure = page.locator(".ddpc-said"), page.locator("svg[aria-label*='total']")
    expect(said).to_contain_text("measured now: ranks 2", timeout=SLOW_MS)
    names = figure.locator("text", has_text="rank")
    expect(names).to_have_count(2)
    key(page, page.locator(".widget-hslider").first, "End")
    expect(said).to_contain_text("measured now: ranks 4", timeout=SLOW_MS)
    expect(names).to_have_count(4)
    screen(page, figure, "lesson-00")

    output = browse.add_and_run(page, "launch('hello_ranks', ranks=3, steps=2000, pause_ms=50)")
    panel = output.locator(".ddpc-panel")
    for rank in range(3):
        expect(lane(panel, rank)).to_contain_text("running", timeout=SLOW_MS)
    expect(panel).to_contain_text("the sum over ranks is 6", timeout=SLOW_MS)

    resume = output.get_by_role("button", name="resume")
    output.get_by_role("button", name="pause").nth(2).click()
    expect(lane(panel, 2)).to_contain_text("paused", timeout=SLOW_MS)
    expect(resume.nth(2)).to_be_enabled()
    expect(resume.nth(1)).to_be_disabled()
    screen(page, output, "panel-paused")
    page.set_viewport_size({"width": 800, "height": 768})  # a notebook beside something else
    page.wait_for_function(STEP_ENDS_BEFORE_BUTTON, timeout=SLOW_MS)
    page.set_viewport_size({"width": 1366, "height": 768})
    resume.nth(2).click()
    expect(lane(panel, 2)).to_contain_text("running", timeout=SLOW_MS)

    output.get_by_role("button", name="kill").nth(1).click()
    expect(lane(panel, 1)).to_contain_text("killed (-9)", timeout=SLOW_MS)
    expect(output).to_contain_text("First failure: rank 1", timeout=SLOW_MS)
    for rank in (0, 2):
        expect(lane(panel, rank)).not_to_contain_text("running")
    expect(output.get_by_role("button")).to_have_count(0)
    screen(page, output, "panel-killed")


def test_a_slider_draws_another_timeline(views: Page) -> None:
    said = views.locator(".ddpc-said")
    expect(said).to_contain_text("measured now: ranks 2, bucket_mb 1;", timeout=SLOW_MS)
    figure = views.locator("svg[aria-label^='Timeline of one step']")
    expect(figure).to_have_count(1)
    before = figure.get_attribute("aria-label")
    key(views, views.locator(".widget-hslider").nth(1), "ArrowRight")
    expect(said).to_contain_text("measured now: ranks 2, bucket_mb 25;", timeout=SLOW_MS)
    expect(figure).to_have_count(1)
    assert figure.get_attribute("aria-label") != before
    screen(views, figure, "slider")


def test_a_prediction_is_locked_by_a_click(views: Page) -> None:
    button = views.get_by_role("button", name="a part")
    button.click()
    expect(views.get_by_text("You predicted a part")).to_be_visible(timeout=SLOW_MS)
    expect(button).to_be_disabled()
    output = browse.add_and_run(views, "guess.reveal('a part')")
    expect(output).to_contain_text("Right: you predicted a part", timeout=SLOW_MS)


def test_lines_appear_while_the_cell_runs(views: Page) -> None:
    source = "run = launch('hello_ranks', ranks=1, steps=2000, pause_ms=50)\nrun.wait();"
    output = browse.add_and_run(views, source)
    expect(output).to_contain_text(re.compile(r"step \d+: I gave 1"), timeout=SLOW_MS)
    views.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    expect(output).to_contain_text("stopped", timeout=SLOW_MS)


def test_what_a_job_prints_is_text(views: Page, tmp_path: Path) -> None:
    job = tmp_path / "shout_markup.py"
    job.write_text("print('<script>document.title = \"broken\"</script><b>bold</b>')\n")
    output = browse.add_and_run(views, f"launch({str(job)!r}, ranks=1).wait();")
    output.locator("summary").first.click(timeout=SLOW_MS)
    expect(output).to_contain_text("<b>bold</b>")
    assert "broken" not in views.title()
