"""JupyterLab in headless Chromium: a learner's clicks, and what the page then shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, find_tool, needs
from playwright.sync_api import Locator, Page, expect

pytestmark = [
    needs("chromium"),
    pytest.mark.timeout(600),
    # pytest-base-url, which pytest-playwright brings, still defines a fixture in this way.
    pytest.mark.filterwarnings("ignore:Session-scoped fixtures defined as instance methods"),
]

SCREENS = ROOT / "build" / "screens"
LESSON = ROOT / "notebooks" / "00_start_here.ipynb"
SLOW_MS = 60_000  # for one thing to appear, on a busy machine
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
READY = """() => {
  const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
  const kernel = session?.session?.kernel;
  return !!(session?.isReady && kernel?.connectionStatus === 'connected'
            && kernel.status === 'idle');
}"""
ADD_AND_RUN = """async source => {
  const { commands, shell } = window.jupyterapp;
  const cells = shell.currentWidget.content;
  cells.activeCellIndex = cells.widgets.length - 1;
  await commands.execute('notebook:insert-cell-below');
  cells.activeCell.model.sharedModel.setSource(source);
  await commands.execute('notebook:run-cell');
}"""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    quiet += ["--disable-background-networking", "--disable-component-update"]
    return {**browser_type_launch_args, "executable_path": find_tool("chromium"), "args": quiet}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_context_args, "viewport": {"width": 1366, "height": 768}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab of this test's own: home, port, token and notebooks' folder."""
    home = tmp_path_factory.mktemp("home")
    settings = home / ".jupyter" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(OVERRIDES))
    notebooks = tmp_path_factory.mktemp("notebooks")
    write_notebook(notebooks / "views.ipynb")
    if LESSON.exists():
        (notebooks / LESSON.name).write_bytes(LESSON.read_bytes())
    kept = ("PATH", "LANG", "CI", "TMPDIR", "DDP_COURSE_RUNS", "DDP_COURSE_DATA")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home), "PYTHONPATH": str(ROOT)}
    options = ["--allow-root", "--no-browser", "--ip=127.0.0.1", "--port=0"]
    options += [f"--ServerApp.root_dir={notebooks}", "--expose-app-in-browser"]
    with open(home / "lab.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=env, stdout=log, stderr=log
        )
        try:
            yield address(home, server)
        finally:
            server.terminate()
            server.wait(30)


def address(home: Path, server: subprocess.Popen[bytes]) -> str:
    """Where the server listens; it writes that into its runtime folder once it does."""
    record = home / f"jpserver-{server.pid}.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        if record.exists() and (said := record.read_text()):
            info = json.loads(said)
            return f"{info['url']}doc/tree/{{}}?token={info['token']}&reset"
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{(home / 'lab.log').read_text()}")


def write_notebook(path: Path) -> None:
    cells = [
        "from ddp_course import explore, launch, predict, timeline",
        "guess = predict('How much is hidden?', choices=['nothing', 'a part', 'all'])",
        "explore('overlap_buckets', ranks=[2, 1], bucket_mb=[1.0, 25.0])",
    ]
    path.write_text(
        json.dumps(
            {
                "nbformat": 4,
                "nbformat_minor": 5,
                "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
                "cells": [
                    {
                        "cell_type": "code",
                        "id": f"cell-{number}",
                        "source": source,
                        "metadata": {},
                        "outputs": [],
                        "execution_count": None,
                    }
                    for number, source in enumerate(cells)
                ],
            }
        )
    )


def open_and_run_all(page: Page, lab: str, notebook: str) -> None:
    page.goto(lab.format(notebook))
    page.wait_for_function(READY, timeout=SLOW_MS)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")


def add_and_run(page: Page, source: str) -> Locator:
    """Run this source in a new last cell; return the cell's output."""
    page.evaluate(ADD_AND_RUN, source)
    return page.locator(".jp-Notebook .jp-Cell .jp-OutputArea").last


def lane(panel: Locator, rank: int) -> Locator:
    return panel.locator(".ddpc-lane").nth(rank)


def screen(page: Page, name: str) -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def test_a_slider_launches_the_job_again(page: Page, lab: str) -> None:
    open_and_run_all(page, lab, "views.ipynb")
    said = page.locator(".ddpc-said")
    expect(said).to_contain_text("measured now: ranks 2, bucket_mb 1;", timeout=SLOW_MS)
    figure = page.locator("svg[aria-label^='Timeline of one step']")
    expect(figure).to_have_count(1)
    before = figure.get_attribute("aria-label")
    handle = page.locator(".widget-hslider .noUi-handle").nth(1)
    handle.focus()
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("measured now: ranks 2, bucket_mb 25;", timeout=SLOW_MS)
    expect(figure).to_have_count(1)
    assert figure.get_attribute("aria-label") != before
    figure.scroll_into_view_if_needed()
    screen(page, "slider")


def test_a_prediction_is_locked_by_a_click(page: Page, lab: str) -> None:
    open_and_run_all(page, lab, "views.ipynb")
    button = page.get_by_role("button", name="a part")
    button.click(timeout=SLOW_MS)
    expect(page.get_by_text("You predicted a part")).to_be_visible(timeout=SLOW_MS)
    expect(button).to_be_disabled()
    output = add_and_run(page, "guess.reveal('a part')")
    expect(output).to_contain_text("Right: you predicted a part", timeout=SLOW_MS)


def test_kill_shows_on_the_page(page: Page, lab: str) -> None:
    open_and_run_all(page, lab, "views.ipynb")
    output = add_and_run(page, "long = launch('hello_ranks', ranks=3, steps=2000, pause_ms=50)")
    panel = output.locator(".ddpc-panel")
    for rank in range(3):
        expect(lane(panel, rank)).to_contain_text("running", timeout=SLOW_MS)
    expect(panel).to_contain_text("hello, I am rank 2 of 3")

    output.get_by_role("button", name="pause").nth(2).click()
    expect(lane(panel, 2)).to_contain_text("paused", timeout=SLOW_MS)
    expect(output.get_by_role("button", name="resume").nth(2)).to_be_enabled()
    expect(output.get_by_role("button", name="resume").nth(1)).to_be_disabled()
    output.scroll_into_view_if_needed()
    screen(page, "panel-paused")
    output.get_by_role("button", name="resume").nth(2).click()
    expect(lane(panel, 2)).to_contain_text("running", timeout=SLOW_MS)

    screen(page, "panel-running")
    output.get_by_role("button", name="kill").nth(1).click()
    expect(lane(panel, 1)).to_contain_text("killed", timeout=SLOW_MS)
    expect(output).to_contain_text("First failure", timeout=SLOW_MS)
    expect(output).to_contain_text("rank 1", timeout=SLOW_MS)
    expect(lane(panel, 1)).to_contain_text("killed (-9)")
    for rank in (0, 2):
        expect(lane(panel, rank)).not_to_contain_text("running")
    expect(output.get_by_role("button", name="kill")).to_have_count(0)
    output.scroll_into_view_if_needed()
    screen(page, "panel-killed")


def test_what_a_job_prints_is_text(page: Page, lab: str, tmp_path: Path) -> None:
    job = tmp_path / "shout_markup.py"
    job.write_text("print('<script>document.title = \"broken\"</script><b>bold</b>')\n")
    open_and_run_all(page, lab, "views.ipynb")
    output = add_and_run(page, f"launch({str(job)!r}, ranks=1).wait();")
    output.locator("summary").first.click(timeout=SLOW_MS)
    expect(output).to_contain_text("<b>bold</b>")
    assert "broken" not in page.title()


def test_lesson_00_runs_from_top_to_bottom(page: Page, lab: str) -> None:
    if not LESSON.exists():
        pytest.fail(f"{LESSON} is not built; `make notebooks` builds it")
    open_and_run_all(page, lab, LESSON.name)
    page.wait_for_function(READY, timeout=5 * SLOW_MS)
    expect(page.locator(".jp-OutputArea-output[data-mime-type*='stderr']")).to_have_count(0)
    expect(page.locator(".jp-RenderedText[data-mime-type*='error']")).to_have_count(0)
    screen(page, "lesson-00")
