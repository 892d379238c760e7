"""What was handed in: whose it is, and, read in a process that can be killed, what its answers are.

    DIR/<student>/…            a folder, as nbgrader, Moodle or a clone makes them, zips inside too
    DIR/<student>.zip          an archive
    DIR/<student>_….py, .ipynb single files, as Canvas makes them; several for one student

An entry belongs to the student whose id (or other id, or full name, by the roster) is its name, or
is a word in it. `answers.py` says which of its files are answers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddp_course.errors import BadArgument, CourseError
from ddp_grading import store
from ddp_grading.answers import MOST_BYTES, SKIPPED, Answer, Collected
from ddp_grading.roster import Student

LIMIT_S = 60.0  # for one submission to be read, on a busy machine
_COURSE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Found:
    """Every student's entries in the order of their names, and the entries of nobody, with why."""

    entries: dict[str, list[Path]]
    strangers: list[tuple[Path, str]]


def find(folder: Path | str, students: Sequence[Student]) -> Found:
    """Whose is what. Raises BadArgument when `folder` cannot be read."""
    folder = Path(folder)
    try:
        paths = sorted(Path(entry.path) for entry in os.scandir(folder))
    except OSError as error:
        raise BadArgument(
            f"{folder} cannot be read: {error.strerror}.", action="name the folder of submissions"
        ) from None
    keys = _keys(students)
    entries: dict[str, list[Path]] = {}
    strangers = []
    for path in paths:
        if path.name.startswith(".") or path.name in SKIPPED:
            continue
        if path.is_symlink():
            strangers.append((path, "it is a link"))
        elif path.is_dir() or path.suffix.lower() in MOST_BYTES:
            owners = _owners(path.name if path.is_dir() else path.stem, keys)
            if len(owners) == 1:
                entries.setdefault(next(iter(owners)), []).append(path)
            else:
                why = "the roster has no such student"
                if owners:
                    why = "it may belong to " + " or ".join(sorted(owners)[:5])
                strangers.append((path, why))
    return Found(entries, strangers)


@dataclass
class _Keys:
    """What entries may be called, and whose they are then: in full, and as a word among others."""

    exact: dict[str, set[str]] = field(default_factory=dict)
    folded: dict[str, set[str]] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)


def _keys(students: Sequence[Student]) -> _Keys:
    keys = _Keys()
    for one in students:
        for key in (one.id, store.folder_name(one.id)):
            keys.exact.setdefault(key, set()).add(one.id)
        first, _, last = one.name.rpartition(" ")
        names = [one.name, last + first] if one.name else []  # doejane, as Canvas has it
        for key in (one.id, *one.also, one.email, one.email.partition("@")[0], *names):
            if key:
                keys.folded.setdefault(_fold(key), set()).add(one.id)
        for key in (one.id, *one.also):
            if _is_telling(key):
                keys.ids.setdefault(_fold(key), set()).add(one.id)
        for key in names:
            keys.names.setdefault(_fold(key), set()).add(one.id)
    return keys


def _is_telling(key: str) -> bool:
    """Whether an id can be meant where it is a word among others: not a short number."""
    return len(key) > 3 or (len(key) > 1 and not key.isdigit())


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()


def _owners(name: str, keys: _Keys) -> set[str]:
    """The students whom an entry's name may mean; best one."""
    name = store.tidy_id(name)
    if name in keys.exact:
        return keys.exact[name]
    name = _fold(name)
    if name in keys.folded:
        return keys.folded[name]
    by_id, by_name = _as_words(name, keys.ids), _as_words(name, keys.names)
    return by_id & by_name or by_id | by_name


def _as_words(name: str, table: dict[str, set[str]]) -> set[str]:
    """Those whose key is a word, or words, of the name, and not part of a longer key there."""
    places: list[tuple[int, int, str]] = []
    for key in sorted((key for key in table if key in name), key=len, reverse=True):
        for found in re.finditer(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])", name):
            if not any(begin <= found.start() and found.end() <= end for begin, end, _ in places):
                places.append((found.start(), found.end(), key))
    return {student for _, _, key in places for student in table[key]}


class Unreadable(CourseError):
    """A submission that could not be read within the limits."""


def collect(
    paths: Sequence[Path], into: Path, *, stopped: Callable[[], bool] = lambda: False
) -> Collected:
    """Write a student's answers into the empty folder `into`. What is parsed there is parsed in a
    process of its own. Raises Unreadable if that does not end well, or `stopped` says so."""
    if not paths:
        return Collected()
    words = [sys.executable, "-m", "ddp_grading.answers", str(into)]
    reader = subprocess.Popen(
        [*words, *(str(path.absolute()) for path in paths)],
        cwd=into,
        env={**os.environ, "PYTHONPATH": str(_COURSE), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            said, errors = reader.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            if stopped() or time.monotonic() > deadline:
                reader.kill()
    if reader.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise Unreadable(
            f"The submission took more than {LIMIT_S:.0f} s, or too much memory, to be read"
            f"{f': {last[:300]}' * bool(last)}.",
            action="look at its files by hand",
        )
    found = json.loads(said)
    answers = {exercise: Answer(**one) for exercise, one in found["answers"].items()}
    return Collected(answers, found["notes"])
