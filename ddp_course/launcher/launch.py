"""launch(): run a job as a real torchrun, from the cell to the result.

    options → Plan (checked) → queue → Launch (warm, or a plain torchrun) → Run

Launches of one process run one after another, so that they do not disturb each other's timings.
In a notebook `launch` returns at once with a live Run; elsewhere it blocks and prints.
"""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

from ddp_course.launcher import options
from ddp_course.launcher.live import Launch
from ddp_course.launcher.plan import Plan
from ddp_course.launcher.session import session
from ddp_course.launcher.watch import print_while_running
from ddp_course.run.run import Run


def launch(job: str | Path, **options_and_knobs: Any) -> Run:
    """Run a job as `ranks` processes under torchrun on this machine, or several times as many.

    job           a job's name, the name of a cell saved by %%job, or a path to any .py file
    {options}
    knobs         the job's own flags, checked before it starts: `bucket_mb=1` for `--bucket-mb 1`

    A failed job returns a failed Run. Raises BadArgument, before anything starts, for arguments
    that cannot work, and CannotRun if this machine cannot start or record a run.
    """
    own, knobs = options.divided(options_and_knobs)
    return begin(Plan(job, own, knobs), wait=own.wait)


launch.__doc__ = str(launch.__doc__).replace("{options}", options.table().strip())
vars(launch)["__signature__"] = options.signature()


def begin(plan: Plan, *, wait: bool | None = None) -> Run:
    """Launch what was planned; `wait` as for `launch`."""
    run = plan.new_run()
    run.shown_in = session.cell
    _submit(Launch(plan, run))
    if wait or (wait is None and not session.in_background):
        print_while_running(run)
    else:
        for listener in session.listeners:
            listener(run)
    return run


_waiting: queue.SimpleQueue[Launch] = queue.SimpleQueue()
_worker: threading.Thread | None = None
_live: set[Run] = set()


def live_runs() -> list[Run]:
    """The runs of this process that have not ended, the running one and those that wait."""
    return [run for run in list(_live) if not run.done]


def _submit(one: Launch) -> None:
    global _worker
    _live.add(one.run)
    _waiting.put(one)
    if _worker is None or not _worker.is_alive():
        _worker = threading.Thread(target=_work, name="ddp-course-launcher", daemon=True)
        _worker.start()


def _work() -> None:
    while True:
        one = _waiting.get()
        try:
            one.perform()
        finally:
            _live.discard(one.run)
            del one
