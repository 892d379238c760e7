"""What the course adds to a notebook's kernel: the panel, %%job, the stop button, a warm start.

`import ddp_course` in a kernel calls `install`. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ddp_course import disk
from ddp_course.errors import BadArgument, CourseError
from ddp_course.launcher import catalogue, plan
from ddp_course.launcher import launch as launcher
from ddp_course.launcher.session import session
from ddp_course.process import warm
from ddp_course.run.run import Run

_CELL_JOB = re.compile(r"_?[a-z][a-z0-9_]{0,59}")
_NOT_PYTHON = re.compile(r"^\s*[%!]", re.MULTILINE)  # what IPython alone understands
_installed = False


def install() -> None:
    """Make this IPython session a place to launch from; does nothing elsewhere, or twice."""
    global _installed
    shell = _shell()
    if shell is None or _installed:
        return
    _installed = True
    shell.register_magic_function(save_job, magic_kind="cell", magic_name="job")
    shell.events.register("pre_run_cell", _note_cell)
    _offer_names(shell)
    _note_cell()
    session.listeners.append(_show)
    formatters = shell.display_formatter
    formatters.ipython_display_formatter.for_type(Run, _show_again)
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    session.in_kernel = True
    session.in_background = os.environ.get("DDP_COURSE_HEADLESS", "") in ("", "0")
    _stop_runs_on_interrupt(kernel)
    if warm.available():
        threading.Thread(target=_start_host, name="ddp-course-warm", daemon=True).start()


def _offer_names(shell: Any) -> None:
    """Put every public name where cells find it: a hint may say `progress()` in any lesson.

    A name that the learner has given to something else stays theirs.
    """
    course = importlib.import_module("ddp_course")
    for name in course.__all__:
        shell.user_ns.setdefault(name, getattr(course, name))


def save_job(line: str, cell: str) -> None:
    """%%job name: save this cell as a job, name.py beside the notebook, for launch("name").

    Raises BadArgument for a name that would hide a module, a job of the course or a file of yours.
    """
    name = line.strip()
    path = Path.cwd() / f"{name}.py"
    problem = _name_problem(name, path)
    if problem:
        raise BadArgument(
            f"A cell's job cannot be called {name!r}: {problem}.",
            action="begin the cell with `%%job my_job`: small letters, digits and _",
        )
    try:
        compile(cell, "the cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        # What an earlier cell saved must not be mistaken for this one.
        path.unlink(missing_ok=True)
        number = getattr(error, "lineno", None)
        line_said = f", line {number}" if number else ""
        ipython = _NOT_PYTHON.search(cell)
        raise BadArgument(
            f"This cell is no Python{line_said}: {getattr(error, 'msg', error)}.",
            cause="a job is a script: %magics and !commands are the notebook's" if ipython else "",
            action=f"mend it and run the cell again; until then there is no job {name!r}",
        ) from None
    for run in launcher.live_runs():
        if run.asked["script"] == str(path):
            run.wait()  # it was launched with the cell as it was
    text = cell if cell.endswith("\n") else cell + "\n"
    try:
        disk.write(path, text + catalogue.FROM_CELL)
    except OSError as error:
        raise CourseError(
            f"{path} cannot be written: {error.strerror}.",
            action="make room, or open the notebook from a folder that is yours to write",
        ) from error
    print(f'saved {path.name}; run it with launch("{name}")')


def _name_problem(name: str, path: Path) -> str:
    if not _CELL_JOB.fullmatch(name):
        return "it is not a plain name"
    if name in catalogue.names():
        return "the course has a job of that name"
    if path.exists() and not catalogue.is_from_cell(path):
        return f"{path.name} is there, and no cell has written it"
    # The job's folder comes first on sys.path: its name would hide the module of the same name.
    known = name in sys.stdlib_module_names or (
        not path.exists() and importlib.util.find_spec(name) is not None
    )
    return "a module has that name, and the job would hide it" if known else ""


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _note_cell(*_: object) -> None:
    session.cell = object()


def _start_host() -> None:
    with contextlib.suppress(OSError, CourseError):  # the launch that needs it will say why
        warm.host(plan.caller_environment())


def _show(run: Run) -> None:
    from ddp_course.show import panel

    _ipython_display().display(panel.show(run))


def _show_again(run: Run) -> None:
    """A Run that ends a cell: shown unless launch has just shown it in this very cell."""
    if run.shown_in is session.cell:
        return
    if session.in_background and not run.done:
        _show(run)
    else:
        ipython = _ipython_display()
        ipython.display(ipython.HTML(run._repr_html_()))


def _ipython_display() -> Any:
    return importlib.import_module("IPython.display")  # it has no types


def _stop_runs_on_interrupt(kernel: Any) -> None:
    """Let the stop button end live runs while no cell is running.

    ipykernel ignores SIGINT between cells; a launch of a finished cell could not be interrupted.
    Its handler is exchanged from the event loop, when no cell has set one of its own.
    """

    def stop_all(*_: object) -> None:
        for run in launcher.live_runs():
            run.stop()

    def exchange() -> None:
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            signal.signal(signal.SIGINT, stop_all)
        elif signal.getsignal(signal.SIGINT) is not stop_all:
            kernel.io_loop.call_later(0.1, exchange)

    kernel.io_loop.add_callback(exchange)
