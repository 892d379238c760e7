"""Take the README's pictures, docs/panel.png and docs/timeline.png, from the real page.

python tools/pictures.py
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from browse import (
    CHROMIUM_FLAGS,
    ROOT,
    SLOW_MS,
    add_and_run,
    jupyterlab,
    open_notebook,
    run_all,
    write_notebook,
)
from playwright.sync_api import Locator, Page, expect, sync_playwright

DOCS = ROOT / "docs"
CELLS = ["from ddp_course import launch, timeline"]
WARM_UP = "launch('overlap_buckets', ranks=1).wait();"
MANY_STEPS = "run = launch('hello_ranks', ranks=4, steps=100, pause_ms=50)"
TRACED = "timeline(launch('overlap_buckets', ranks=2, trace=True))"


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is missing.\nWhat to do: sudo apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        notebooks, home = Path(folder, "notebooks"), Path(folder, "home")
        notebooks.mkdir()
        write_notebook(notebooks / "pictures.ipynb", CELLS)
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        with jupyterlab(notebooks, home) as lab:
            page = browser.new_page(viewport={"width": 1180, "height": 768})
            open_notebook(page, lab, "pictures.ipynb")
            run_all(page)
            expect(add_and_run(page, WARM_UP)).to_contain_text("ok", timeout=SLOW_MS)
            take_panel(page)
            take_timeline(page)
        browser.close()


def take_panel(page: Page) -> None:
    panel = add_and_run(page, MANY_STEPS).locator(".ddpc-panel")
    lanes = panel.locator(".ddpc-lane")
    some_way = re.compile(r"step [3-9]\d: I gave")
    expect(lanes.filter(has_text=some_way)).to_have_count(4, timeout=SLOW_MS)
    panel.get_by_role("button", name="pause").nth(2).click()
    expect(lanes.nth(2)).to_contain_text("paused", timeout=SLOW_MS)
    page.add_style_tag(content=elsewhere(panel.locator(".ddpc-command")))
    save(panel, "panel")
    panel.get_by_role("button", name="Stop").click()


def elsewhere(command: Locator) -> str:
    """A style that shows the command as it would be for a project in the home folder."""
    words = (command.get_attribute("title") or "").replace(str(ROOT), "~/ddp-course")
    return (
        "code.ddpc-command.ddpc-command { font-size: 0; }"
        f"code.ddpc-command::after {{ content: {json.dumps(words)}; font-size: 11px; }}"
    )


def take_timeline(page: Page) -> None:
    figure = add_and_run(page, TRACED).locator(".ddpc", has=page.locator("svg")).last
    expect(figure.locator("svg").first).to_be_visible(timeout=SLOW_MS)
    save(figure, "timeline")


def save(shown: Locator, name: str) -> None:
    shown.scroll_into_view_if_needed()
    shown.page.mouse.move(0, 0)
    path = DOCS / f"{name}.png"
    shown.screenshot(path=path)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    main()
