"""What a learner has done so far: progress.json in the folder of the runs.

    {"version": 1, "exercises": {"ex02": {"status": "fail", "points": 0, "best": 4, "checks": 3,
     "passed": "2026-05-01T10:00:00+0000", "kind": "sum instead of mean", "tier": 2, "sha256": …}}}

It survives the kernel. It is replaced whole, so that a crash leaves the old one or the new one; a
file that cannot be understood is kept aside under another name, and that is said. Checks of the
course's own solutions are not recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, json

from ddp_course import disk
from ddp_course.checks import exercises, files
from ddp_course.checks.exercises import EXERCISES, exercise_file
from ddp_course.checks.verdict import SIGNS, WORDS, Verdict
from ddp_course.errors import CourseError
from ddp_course.run.folder import runs_folder
from ddp_course.show.document import Document, Note, Shown, Table, Title

Count = Annotated[int, Meta(ge=0, lt=10**9)]


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered of one exercise.

    status  of its last check; "" if there was none
    best    the most points of any check
    passed  when it first passed, ISO 8601; "" if never
    kind    the mistake of the last check, or its status
    tier    how many hints have been asked for since that kind of mistake came up
    sha256  of the file that was last checked
    """

    status: str = ""
    points: Count = 0
    best: Count = 0
    checks: Count = 0
    passed: str = ""
    kind: str = ""
    tier: Count = 0
    sha256: str = ""

    def __post_init__(self) -> None:
        if self.status not in ("", *WORDS):
            raise ValueError(f"a status {self.status!r:.80}")


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    exercises: dict[str, Entry]


@dataclass(frozen=True, repr=False)
class Progress(Shown):
    """All exercises and how far the learner is; it draws itself."""

    entries: dict[str, Entry] = field(default_factory=dict)
    problem: str = ""  # a damaged file, and where it is kept

    def rows(self) -> list[list[str]]:
        """Name, title, lesson, difficulty, minutes, points, state of every exercise."""
        return [
            [
                one.name,
                one.title,
                one.lesson,
                one.difficulty,
                str(one.minutes),
                f"{self.of(one.name).best}/{one.max_points}",
                state(self.of(one.name), exercise_file(one)),
            ]
            for one in EXERCISES.values()
        ]

    def of(self, exercise: str) -> Entry:
        return self.entries.get(exercise, Entry())

    @property
    def summary(self) -> str:
        passed = sum(bool(self.of(name).passed) for name in EXERCISES)
        best = sum(self.of(name).best for name in EXERCISES)
        most = sum(one.max_points for one in EXERCISES.values())
        return f"{passed} of {len(EXERCISES)} exercises passed, {best} of {most} points"

    def document(self) -> Document:
        problem = [Note(self.problem)] if self.problem else []
        table = Table(HEAD, self.rows())
        return Document(Title(self.summary), table, *problem, name="ddp-progress")


HEAD = ["exercise", "title", "lesson", "difficulty", "minutes", "points", "state"]


def state(entry: Entry, path: Path) -> str:
    """One exercise's state in words."""
    if not entry.status:
        return f"{SIGNS['ungradable']} not yet"
    if entry.passed and entry.status != "pass":
        return f"{SIGNS['pass']} passed before; now {WORDS[entry.status]}"
    changed = entry.sha256 != _digest(path)
    word = f"{SIGNS[entry.status]} {WORDS[entry.status]}"
    return f"{word}, changed since" if changed and entry.status != "ungradable" else word


def progress() -> Progress:
    """How far you are: every exercise, its best points and the state of its last check."""
    entries, problem = _read(_path())
    return Progress(entries, problem)


def note(verdict: Verdict) -> str:
    """Remember a verdict. Returns what went wrong with that, or ""."""
    if exercises.checks_solutions() or verdict.status == "infra":
        return ""

    def noted(entry: Entry) -> Entry:
        kind = next((r.mistake for r in verdict.results if r.status != "pass"), "")
        kind = kind or verdict.status
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return Entry(
            status=verdict.status,
            points=verdict.points,
            best=max(entry.best, verdict.points),
            checks=entry.checks + (verdict.status != "ungradable"),
            passed=entry.passed or (now if verdict.passed else ""),
            kind=kind,
            tier=entry.tier if kind == entry.kind else 0,
            sha256=_digest(Path(verdict.file)),
        )

    return change(verdict.exercise, noted)


def change(exercise: str, how: Callable[[Entry], Entry]) -> str:
    """Replace one exercise's entry. Returns what went wrong with that, or ""."""
    path = _path()
    try:
        with _alone(path):
            entries, problem = _read(path)
            entries[exercise] = how(entries.get(exercise, Entry()))
            whole = json.encode(_Record(1, dict(sorted(entries.items()))))
            files.replace(path, json.format(whole, indent=1) + b"\n")
    except OSError as error:
        return f"Your progress could not be recorded in {path}: {error.strerror or error}."
    return problem


def _path() -> Path:
    return runs_folder() / "progress.json"


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process changes it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> tuple[dict[str, Entry], str]:
    try:
        if not path.exists():
            return {}, ""
        text = files.read(path)
        return disk.parse_as(_Record, text).exercises, ""
    except (CourseError, ValueError):
        aside = path.with_name(f"progress-damaged-{time.strftime('%Y%m%d-%H%M%S')}.json")
        try:
            path.replace(aside)
        except OSError as error:
            return {}, f"{path} is damaged, and cannot be moved away: {error.strerror}."
        return {}, f"{path.name} was damaged; it is kept as {aside}, and a new one begins."


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(files.read(path)).hexdigest()
    except CourseError:
        return ""
