"""All exercises, by name, and where their files are."""

from __future__ import annotations

import difflib
import importlib
import os
import re
from pathlib import Path

from ddp_course import copies
from ddp_course.checks.manifest import Exercise
from ddp_course.errors import BadArgument, shown

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "ddp_course" / "exercises"
EXERCISES: dict[str, Exercise] = {
    path.parent.name.partition("_")[0]: importlib.import_module(
        f"ddp_course.exercises.{path.parent.name}.exercise"
    ).EXERCISE
    for path in sorted(FOLDER.glob("*/exercise.py"))
}


def find(name: str) -> Exercise:
    """The exercise of that name, "ex02", or of that file, "ex02_average_gradients.py".

    Raises BadArgument, with the nearest name, for what no exercise is called.
    """
    asked = Path(name).name.removesuffix(".py") if isinstance(name, str | Path) else ""
    for exercise in EXERCISES.values():
        if asked in (exercise.name, exercise.stem):
            return exercise
    nearest = _nearest(asked.lower())
    raise BadArgument(
        f"There is no exercise {shown(name)}." + (f" Did you mean {nearest}?" * bool(nearest)),
        action="choose one of " + ", ".join(EXERCISES),
    )


def _nearest(asked: str) -> str:
    number = re.search(r"\d+[a-z]?", asked)
    if number and (named := f"ex{number[0].lstrip('0').zfill(2)}") in EXERCISES:
        return named
    if number and (named := f"ex{number[0].lstrip('0').zfill(3)}") in EXERCISES:  # 3b
        return named
    words = {word: one.name for one in EXERCISES.values() for word in (one.name, one.stem)}
    close = difflib.get_close_matches(asked, words, 1) if asked else []
    inside = [one.name for one in EXERCISES.values() if len(asked) > 3 and asked in one.stem]
    return (inside + [words[one] for one in close] + [""])[0]


def folder() -> Path:
    """Where the learner's answers are: what DDP_COURSE_EXERCISES names, else their copies."""
    if named := os.environ.get("DDP_COURSE_EXERCISES"):
        return ROOT / Path(named).expanduser()
    return (copies.find() or ROOT) / "exercises"


def exercise_file(exercise: Exercise) -> Path:
    """The learner's answer to an exercise."""
    return folder() / f"{exercise.stem}.py"


def checks_solutions() -> bool:
    """Whether the answers that are checked are the course's own."""
    return folder().resolve() == (ROOT / "solutions").resolve()
