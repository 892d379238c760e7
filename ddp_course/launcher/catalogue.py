"""Which jobs there are: the course's, a cell's, any script, any module."""

from __future__ import annotations

import difflib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from ddp_course import disk
from ddp_course.disk import PACKAGE
from ddp_course.errors import BadArgument, shown

JOBS = PACKAGE / "jobs"


def find_job(job: str | Path) -> Path:
    """The script of a job: a name (of a cell's job here, or of the course) or a path to a .py file.

    Raises BadArgument, naming the jobs that there are.
    """
    if not isinstance(job, str | Path) or not str(job).strip() or "\0" in str(job):
        raise BadArgument(
            f"A job is a name or a path to a .py file, not {shown(job)}.",
            action='give it as launch("hello_ranks") or launch("my_script.py")',
        )
    text = str(job)
    if text.endswith(".py") or "/" in text or isinstance(job, Path):
        path = Path(os.path.expanduser(text))
        if _is_file(path) and path.suffix == ".py":
            return path.resolve()
        there = _exists(path)
        raise BadArgument(
            f"{shown(str(path))} is {'not a Python file (.py)' if there else 'not there'}.",
            cause="" if path.is_absolute() or there else f"the path is relative to {_here()}",
            action="check the path, or give the name of a job, without .py",
        )
    here = Path(f"{text}.py")
    if _is_file(here) and is_from_cell(here):
        return here.resolve()
    if text in (jobs := course_jobs()):
        return jobs[text]
    known = sorted({*jobs, *cell_jobs()})
    close = difflib.get_close_matches(text, known, n=1)
    if _is_file(here):
        close = [f"{text}.py"]  # a file is launched by its path
    raise BadArgument(
        f"There is no job {shown(text)}.",
        cause=f"did you mean {close[0]!r}?" if close else "",
        action="" if close else "choose one of " + ", ".join(known),
    )


def course_jobs() -> dict[str, Path]:
    """The course's own jobs, {name: script}: in `jobs/` or in a lesson's folder there."""
    found = (path for path in JOBS.rglob("*.py") if not path.stem.startswith("_"))
    return {path.stem: path.resolve() for path in sorted(found, key=lambda path: path.stem)}


def names() -> list[str]:
    """The names of the course's own jobs."""
    return list(course_jobs())


def is_ours(script: Path) -> bool:
    """Whether a script is a job of the course."""
    return script.is_relative_to(JOBS.resolve())


FROM_CELL = "# (a cell saved by %%job; edit the cell, not this file)\n"


def cell_jobs() -> list[str]:
    """The jobs that cells have saved in the present folder."""
    return sorted(path.stem for path in Path().glob("*.py") if is_from_cell(path))


def is_from_cell(path: Path) -> bool:
    """Whether this file was written by %%job, so that it may be overwritten by it."""
    mark = FROM_CELL.encode()
    try:
        with disk.open_file(path) as file:  # whatever lies about in the learner's folder
            file.seek(-len(mark), os.SEEK_END)
            return file.read() == mark
    except OSError:
        return False


def find_module(name: str) -> Path:
    """The file that `python -m name` runs in this folder; nothing is imported to find it.

    Raises BadArgument if there is none.
    """
    spec, within = None, [os.getcwd(), *sys.path]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, within)
        within = list(spec.submodule_search_locations or []) if spec else []
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec("__main__", within)  # a package
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise BadArgument(
            f"There is no module {shown(name)} to run.",
            cause=f"it is looked for in {_here()}, as `python -m` does",
            action="give a module's name, package.module, or leave -m out for a path",
        )
    return Path(spec.origin).resolve()


def _here() -> str:
    try:
        return f"the folder that you are in, {os.getcwd()}"
    except OSError:
        return "a folder that has been removed"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that is closed to us
        return False
