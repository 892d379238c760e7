"""Build notebooks/*.ipynb from notebooks/src/*.py (jupytext percent format).

    python tools/build_notebooks.py            write what has changed
    python tools/build_notebooks.py --check    write nothing; exit 1 where a notebook is out of date

The result is the same byte for byte each time: no outputs, one kernel specification, and cell ids
made from what the cells say.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from pathlib import Path

import jupytext
import nbformat

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def build(source: str) -> str:
    """The text of the notebook for the text of a percent script."""
    notebook = jupytext.reads(source, fmt="py:percent")
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        words = f"{cell.cell_type}\n{cell.source}"
        seen[words] += 1
        cell["id"] = hashlib.sha256(f"{words}\n{seen[words]}".encode()).hexdigest()[:12]
        tags = list(cell.metadata.get("tags", []))
        cell["metadata"] = {}
        if cell.source.startswith(("guess = predict(", "guess.reveal(")):  # they show it all
            tags.append("hide-input")
            cell["metadata"]["jupyter"] = {"source_hidden": True}
        if tags:
            cell["metadata"]["tags"] = tags
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    notebook = nbformat.from_dict(
        {"cells": notebook.cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    )
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook, indent=1)).rstrip("\n") + "\n"


def expected(folder: Path = NOTEBOOKS) -> dict[Path, str]:
    """What should stand in the folder: each notebook's path and text."""
    return {
        folder / f"{source.stem}.ipynb": build(source.read_text(encoding="utf-8"))
        for source in sorted((folder / "src").glob("*.py"))
    }


def out_of_date(folder: Path = NOTEBOOKS) -> list[str]:
    """One line for each notebook that is not what its source builds; empty when all are."""
    wanted = expected(folder)
    lines = [
        f"{path.name} is not what src/{path.stem}.py builds"
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    strays = sorted(set(folder.glob("*.ipynb")) - set(wanted))
    return lines + [f"{path.name} has no source in src/" for path in strays]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the notebooks from their sources.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if parser.parse_args().check:
        lines = out_of_date()
        for line in lines:
            print(f"{line}; to build it: make notebooks", file=sys.stderr)
        return 1 if lines else 0
    for path, text in expected().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"built {path.relative_to(NOTEBOOKS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
