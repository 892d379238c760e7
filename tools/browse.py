"""JupyterLab in headless Chromium, driven as a learner would: for tests and for pictures."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parent.parent
SLOW_MS = 60_000  # for one thing to appear, on a busy machine
CHROMIUM_FLAGS = [  # all but the first keep it off the network
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]

_READY = """() => {
  const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
  const kernel = session?.session?.kernel;
  return !!(session?.isReady && kernel?.connectionStatus === 'connected'
            && kernel.status === 'idle');
}"""
_ALL_RAN = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.widgets;
  const code = cells.filter(cell => cell.model.type === 'code');
  const failed = code.some(cell => [...Array(cell.model.outputs.length).keys()].some(
    i => cell.model.outputs.get(i).type === 'error'));
  return failed || code.every(cell => cell.model.executionCount);
}"""
_ADD_AND_RUN = """async source => {
  const { commands, shell } = window.jupyterapp;
  const cells = shell.currentWidget.content;
  cells.activeCellIndex = cells.widgets.length - 1;
  await commands.execute('notebook:insert-cell-below');
  cells.activeCell.model.sharedModel.setSource(source);
  void commands.execute('notebook:run-cell');  // its promise is kept when the cell has ended
}"""


@contextlib.contextmanager
def jupyterlab(folder: Path, home: Path, *, theme: str = "JupyterLab Light") -> Iterator[str]:
    """Serve this folder with a home and a port of its own; gives an address to format with a path.

    The course is imported from this project, whatever is installed.
    """
    settings = home / ".jupyter" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(_settings(theme)))
    kept = ("PATH", "LANG", "CI", "TMPDIR", "DDP_COURSE_RUNS", "DDP_COURSE_DATA")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home), "PYTHONPATH": str(ROOT)}
    options = ["--allow-root", "--no-browser", "--ip=127.0.0.1", "--port=0"]
    options += [f"--ServerApp.root_dir={folder}", "--expose-app-in-browser"]
    log = home / "lab.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=env, stdout=output, stderr=output
        )
        try:
            yield _address(home / f"jpserver-{server.pid}.json", server, log)
        finally:
            server.terminate()
            server.wait(30)


def _settings(theme: str) -> dict[str, dict[str, object]]:
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    return {
        "@jupyterlab/apputils-extension:notification": quiet,
        "@jupyterlab/apputils-extension:themes": {"theme": theme},
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    }


def _address(record: Path, server: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server listens; it writes that into its runtime folder once it does."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(record.read_text())
            return f"{said['url']}doc/tree/{{}}?token={said['token']}&reset"
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


def write_notebook(path: Path, sources: Sequence[str]) -> None:
    """A notebook with these code cells."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]
    # Without a kernelspec JupyterLab asks for a kernel, and nothing else goes on.
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    path.write_text(json.dumps(notebook))


def open_notebook(page: Page, lab: str, path: str) -> None:
    """Open a notebook and wait until its kernel can be used; before that a command is lost."""
    page.goto(lab.format(path))
    page.wait_for_function(_READY, timeout=SLOW_MS)


def run_all(page: Page, *, limit_ms: float = 2 * SLOW_MS) -> None:
    """Run all cells, and wait until they have run or one has failed."""
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(_ALL_RAN, timeout=limit_ms)


def add_and_run(page: Page, source: str) -> Locator:
    """Run this source in a new last cell, without waiting; return the cell's output."""
    page.evaluate(_ADD_AND_RUN, source)
    return page.locator(".jp-Notebook .jp-Cell .jp-OutputArea").last
