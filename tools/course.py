"""Run every notebook without a browser and write pages with their outputs.

    python tools/course.py [00 02 …] [--out build/course]

Each page holds what its cells printed and drew; index.html lists them. Exit code 1 if a cell failed
that is not tagged to fail; its page ends at that cell.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from nbconvert.preprocessors import TagRemovePreprocessor

ROOT = Path(__file__).resolve().parent.parent
CELL_LIMIT_S = 300


@dataclass(frozen=True)
class Page:
    """One executed notebook."""

    name: str
    title: str
    said: str  # ok, or which cell failed and how


def run_notebook(path: Path, out: Path) -> Page:
    """Execute a notebook in its own folder and write its page into `out`."""
    notebook = nbformat.read(path, as_version=4)
    begun: list[int] = []
    client = NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # no remark about TCP on loopback
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=lambda cell, cell_index: begun.append(cell_index),
    )
    start = time.monotonic()
    try:
        client.execute()
        said = f"ok, {time.monotonic() - start:.0f} s"
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        first = notebook.cells[begun[-1]].source.strip().partition("\n")[0]
        last = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()[-1:]
        said = f"FAILED in cell {begun[-1] + 1} ({first}): {''.join(last)}"
    exporter = HTMLExporter(template_name="lab")
    exporter.register_preprocessor(
        TagRemovePreprocessor(remove_input_tags={"hide-input"}), enabled=True
    )
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": path.stem}})
    (out / f"{path.stem}.html").write_text(body, encoding="utf-8")
    title = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
    return Page(path.stem, title, said)


def write_index(pages: list[Page], out: Path) -> None:
    """The list of pages, each with how it went."""
    rows = "\n".join(
        f'<li><a href="{page.name}.html">{html.escape(page.title)}</a> ({html.escape(page.said)})'
        for page in pages
    )
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>ddp-course</title>'
        "<style>body { font-family: sans-serif; max-width: 45em; margin: 3em auto }</style>"
        f"</head><body>\n<h1>ddp-course, as it ran here</h1>\n<ul>\n{rows}\n</ul>\n</body></html>\n"
    )
    (out / "index.html").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run every notebook and write its page.")
    parser.add_argument("lessons", nargs="*", help="the first letters of names (default: all)")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "course")
    given = parser.parse_args(arguments)
    prefixes = tuple(given.lessons) or ("",)
    paths = [p for p in sorted(given.notebooks.glob("*.ipynb")) if p.name.startswith(prefixes)]
    if not paths:
        print(f"no notebook in {given.notebooks} is called so", file=sys.stderr)
        return 1
    os.environ["DDP_COURSE_HEADLESS"] = "1"
    given.out.mkdir(parents=True, exist_ok=True)
    pages = []
    for path in paths:
        print(f"{path.stem} … ", end="", flush=True)
        page = run_notebook(path, given.out)
        print(page.said, flush=True)
        pages.append(page)
    write_index(pages, given.out)
    print(f"pages: {given.out / 'index.html'}")
    return 1 if any("FAILED" in page.said for page in pages) else 0


if __name__ == "__main__":
    sys.exit(main())
