"""Where runs are kept, and for how long.

    run.json            what was asked: job, ranks, knobs, command, environment, limits
    job.py              a copy of the script
    live.json           which process is which rank, while the run is live
    events-<rank>.jsonl what each rank reported (ddp_course.rank.report)
    ledger-<rank>-<attempt>.json  what each rank communicated (ddp_course.observe.recorder)
    trace-<rank>.json   each rank's profile, if it was traced
    logs/…              torchrun's own log folder: every rank's stdout, stderr and error file
    torchrun.log        what torchrun itself printed
    lines.jsonl         all of it in order of arrival, tagged by rank
    result.json         how it ended: exit codes, wall time
    failure.json        what went wrong first, once somebody has asked

Everything that shows or judges a run reads the folder, so a run can be reopened tomorrow.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from ddp_course.disk import PACKAGE, Lock
from ddp_course.errors import CannotRun

KEEP_RUNS = 100
KEEP_DAYS = 14
NAME = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{4}")


def runs_folder() -> Path:
    """Where runs are kept: $DDP_COURSE_RUNS, else `runs/` of the course, else the user's cache."""
    if os.environ.get("DDP_COURSE_RUNS"):
        return Path(os.environ["DDP_COURSE_RUNS"]).expanduser().absolute()
    course = PACKAGE.parent
    if (course / "pyproject.toml").is_file() and os.access(course, os.W_OK):
        return course / "runs"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "ddp-course" / "runs"


def new_folder(job: str) -> Path:
    """Make the folder of a new run, and prune old ones. Raises CannotRun if there is no room."""
    root = runs_folder()
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:40] or "job"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        root.mkdir(parents=True, exist_ok=True)
        prune(root)
        while True:
            folder = root / f"{stamp}-{safe}-{os.urandom(2).hex()}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise no_room(root, error) from error


def no_room(folder: Path, error: OSError) -> CannotRun:
    """The error for a run folder that cannot be written."""
    return CannotRun(
        f"The run cannot be recorded in {folder}: {error.strerror or error}.",
        cause="the disk is full, the folder is not yours to write, or somebody has removed it",
        action="make room there, or set DDP_COURSE_RUNS to a folder with room",
    )


def prune(root: Path, *, keep: int = KEEP_RUNS, days: float = KEEP_DAYS) -> list[Path]:
    """Remove runs beyond `keep` or older than `days`, except those in use; return what went."""
    folders = sorted((f for f in root.iterdir() if NAME.fullmatch(f.name)), reverse=True)
    gone: list[Path] = []
    for number, folder in enumerate(folders, start=1):
        with contextlib.suppress(OSError):
            age_s = time.time() - folder.stat().st_mtime
            if age_s < 60 or (number <= keep and age_s < days * 86400):
                continue
            with Lock(folder, exclusive=True) as lock:
                if lock.held:
                    shutil.rmtree(folder, ignore_errors=True)
                    gone.append(folder)
    return gone
