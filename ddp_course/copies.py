"""The learner's copies of notebooks and exercises: laid out once, updated without losing a line.

Learners never edit the files that git tracks, so `git pull` never conflicts with their work. What
was given is recorded (`.ddp-course.json`, a digest for each file); at the next update

    not yours yet, or deleted        it is laid out
    as it was given                  it is replaced by the new version
    changed by you, not by us        it stays
    changed by both                  it stays, and the new version is laid beside it: NAME.new.py

A notebook counts as changed when a cell's text is, not when it was merely run. Whatever is replaced
although it differs from what was given (outputs) is kept in `.backups/`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddp_course import disk
from ddp_course.errors import CannotRun

ROOT = disk.PACKAGE.parent
HOME = ROOT / "my_course"  # where `make lab` lays the copies out
_RECORD = ".ddp-course.json"
_GIVEN = "notebooks/*.ipynb", "notebooks/*.md", "exercises/*.py"


@dataclasses.dataclass(frozen=True)
class Laid:
    """What `lay_out` did: names of files, relative to `folder`."""

    folder: Path
    added: list[str]
    updated: list[str]
    beside: list[str]  # new versions of what you have changed: yours stay, these are the new ones

    def __str__(self) -> str:
        lines = [f"Your copies of the lessons and exercises are in {self.folder}"]
        for what, names in (("new", self.added), ("updated", self.updated)):
            if names:
                lines.append(f"  {what}: {', '.join(names)}")
        for name in self.beside:
            lines.append(f"  kept as you changed it; the new version is beside it: {name}")
        return "\n".join(lines)


def find() -> Path | None:
    """The folder of copies that we are in, else the one that `make lab` made, else None."""
    here = Path.cwd()
    for folder in (here, *here.parents, HOME):
        if (folder / _RECORD).is_file():
            return folder
    return None


def lay_out(folder: Path = HOME) -> Laid:
    """Bring a folder of copies up to date; nothing of the learner's is overwritten or removed.

    Raises CannotRun where the course's own files are missing or the folder cannot be written.
    """
    folder = folder.expanduser().absolute()
    given = sorted(path for pattern in _GIVEN for path in ROOT.glob(pattern))
    if not given:
        raise CannotRun(
            f"There are no lessons beside the package, in {ROOT}.",
            cause="only the package was installed, without its notebooks",
            action="clone the repository, and start from there",
        )
    laid = Laid(folder, [], [], [])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record = _recorded(folder)
        for source in given:
            name = str(source.relative_to(ROOT))
            record[name] = _lay(source, folder / name, record.get(name), laid)
        disk.write(folder / _RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise CannotRun(
            f"{error.filename or folder} cannot be written: {error.strerror}.",
            action="name a folder that is yours to write: python -m ddp_course start FOLDER",
        ) from error
    return laid


def _lay(source: Path, copy: Path, recorded: str | None, laid: Laid) -> str:
    """Lay out one file. Returns the digest of what the learner has been given."""
    name, new = str(copy.relative_to(laid.folder)), _digest(source)
    copy.parent.mkdir(exist_ok=True)
    if not copy.exists():
        disk.write(copy, source.read_text(encoding="utf-8"))
        laid.added.append(name)
    elif (yours := _digest(copy)) == new or recorded == new:
        pass  # nothing new
    elif yours == recorded:
        _keep(copy, laid.folder)
        disk.write(copy, source.read_text(encoding="utf-8"))
        laid.updated.append(name)
    else:
        beside = copy.with_suffix(f".new{copy.suffix}")
        if beside.exists() and _digest(beside) != new:
            _keep(beside, laid.folder)
        disk.write(beside, source.read_text(encoding="utf-8"))
        laid.beside.append(str(beside.relative_to(laid.folder)))
    return new


def _digest(path: Path) -> str:
    """Of a file's content; of a notebook, of its cells' texts."""
    data = path.read_bytes()
    if path.suffix == ".ipynb":
        with contextlib.suppress(ValueError, TypeError, KeyError):  # else its bytes count
            data = json.dumps(list(_cells(disk.parse_json(data)))).encode()
    return hashlib.sha256(data).hexdigest()


def _cells(notebook: Any) -> Iterator[list[str]]:
    """The kind and text of each cell, however the text is split into lines."""
    for cell in notebook["cells"]:
        yield [str(cell["cell_type"]), "".join(cell["source"])]


def _keep(copy: Path, folder: Path) -> None:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = folder / ".backups" / f"{copy.stem}-{stamp}-{os.urandom(2).hex()}{copy.suffix}"
    kept.parent.mkdir(exist_ok=True)
    os.replace(copy, kept)


def _recorded(folder: Path) -> dict[str, str]:
    try:
        found = disk.read_json(folder / _RECORD)
        return {str(name): str(digest) for name, digest in found.items()}
    except (OSError, ValueError, AttributeError):  # none yet, or damaged: nothing counts as given
        return {}
