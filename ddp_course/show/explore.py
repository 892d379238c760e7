"""explore(job, …): sliders that launch the real job again and draw what it measured.

Threads. A slider only notes what is wanted; one worker thread launches, waits and draws. The latest
wish wins: a run that is no longer wanted is stopped, and runs never overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument, CourseError, shown
from ddp_course.launcher import launch as launcher
from ddp_course.launcher.session import session
from ddp_course.run.run import Run
from ddp_course.show import panel
from ddp_course.show.bars import bars
from ddp_course.show.document import Document, Line, Note, style
from ddp_course.show.timeline import timeline

__all__ = ["bars", "explore"]

View = Callable[[Any], Any]


def explore(
    job: str | Path,
    view: View = timeline,
    *,
    ranks: int | Sequence[int] = (1, 2, 4),
    trace: bool | None = None,
    limit_s: float = 60,
    **knobs: Any,
) -> Explorer:
    """Launch a job, draw it, and do so again for every position of its sliders.

    view    what draws a finished run: `timeline`, `bars("loss")`, or any function of a Run
    ranks   a number, or several: then it is a slider
    trace   profile the run; by default only for the timeline, which needs it
    knobs   the job's flags; a list of values makes a slider, which starts at the first

    In a notebook it returns at once; elsewhere it launches the first position and waits for it.
    Raises BadArgument, as `launch` does, if the first position cannot be launched.
    """
    if not callable(view):
        raise BadArgument(
            f"The view cannot be {shown(view)}.", action='give timeline, bars("loss") or a function'
        )
    asked: dict[str, Any] = {"ranks": ranks, **knobs}
    sliders = {n: list(v) for n, v in asked.items() if isinstance(v, list | tuple | range)}
    if empty := [name for name, values in sliders.items() if not values]:
        raise BadArgument(f"{empty[0]} has no values.", action=f"give {empty[0]}=[…] at least one")
    fixed = {
        "trace": (view is timeline) if trace is None else trace,
        "limit_s": limit_s,
        **{name: value for name, value in asked.items() if name not in sliders},
    }
    return Explorer(job, view, sliders, fixed)


class Explorer:
    """A job with sliders. `run` and `figure` are those of the latest finished launch."""

    def __init__(
        self, job: str | Path, view: View, sliders: dict[str, list[Any]], fixed: dict[str, Any]
    ) -> None:
        self._job, self._view, self._sliders, self._fixed = job, view, sliders, fixed
        self.run: Run | None = None
        self.figure: Any = None
        self.problem: str = ""  # why there is no figure of the latest launch
        self.redraw_s: float = 0.0  # from the wish to the figure
        self._lock = threading.Lock()
        self._wanted: dict[str, Any] | None = None
        self._worker: threading.Thread | None = None
        self._live: _Live | None = None
        first = {name: values[0] for name, values in sliders.items()}
        started = time.monotonic()
        if session.in_background:
            self._live = _Live(self)
            run = self._launch(first)
            with self._lock:
                self._start((run, first, started))
        else:
            run = launcher.launch(job, wait=True, **self._fixed, **first)
            self._draw(run, started)

    def choose(self, **position: Any) -> Explorer:
        """Move sliders: what a hand does to them. Raises BadArgument for a value they lack."""
        for name, value in position.items():
            if value not in self._sliders.get(name, ()):
                listed = "; ".join(f"{n}: {v}" for n, v in self._sliders.items())
                raise BadArgument(f"There is no {name}={value!r} to choose.", action=listed)
        if self._live is not None:
            self._live.move(position)
        else:
            first = {name: values[0] for name, values in self._sliders.items()}
            started = time.monotonic()
            run = launcher.launch(self._job, wait=True, **self._fixed, **{**first, **position})
            self._draw(run, started)
        return self

    def wait(self) -> Explorer:
        """Wait until the figure is that of the sliders' position."""
        while (worker := self._worker) is not None and worker.is_alive():
            worker.join(0.1)
        return self

    def want(self, position: dict[str, Any]) -> None:
        """Launch this position next, instead of what is under way; from any thread."""
        with self._lock:
            self._wanted = position
            if self._worker is None:
                self._start(None)

    def _start(self, first: tuple[Run, dict[str, Any], float] | None) -> None:
        """Start the worker; the caller holds the lock that the worker needs to leave."""
        worker = threading.Thread(target=self._work, args=(first,), name="explore", daemon=True)
        worker.start()
        self._worker = worker

    def _work(self, first: tuple[Run, dict[str, Any], float] | None) -> None:
        if first is not None:
            self._follow(*first)
        while (position := self._next()) is not None:
            started = time.monotonic()
            run = self._try_launch(position)
            if run is not None:
                self._follow(run, position, started)

    def _next(self) -> dict[str, Any] | None:
        """What is wanted, if anything; without it the worker leaves."""
        with self._lock:
            position, self._wanted = self._wanted, None
            if position is None:
                self._worker = None
            return position

    def _follow(self, run: Run, position: dict[str, Any], started: float) -> None:
        """Wait for the run and draw it, unless something else is wanted meanwhile."""
        if self._live is not None:
            self._live.busy(position)
        ended = threading.Event()
        run.subscribe(lambda _: ended.set() if run.done else None)
        while not ended.wait(0.02) and self._wanted is None:
            pass
        if self._wanted is not None:
            run.stop()
            ended.wait()
        if self._wanted is None:
            self._draw(run, started)

    def _try_launch(self, position: dict[str, Any]) -> Run | None:
        try:
            return self._launch(position)
        except CourseError as error:
            self.problem = str(error)
            if self._live is not None:
                self._live.failed(self.problem)
            return None

    def _launch(self, position: dict[str, Any]) -> Run:
        with panel.hidden():
            return launcher.launch(self._job, wait=False, **self._fixed, **position)

    def _draw(self, run: Run, started: float) -> None:
        self.run = run
        try:
            self.figure, self.problem = self._view(run), ""
        except CourseError as error:
            ended = "" if run.failure is None else f"{run.summary()}. {run.failure.what}"
            self.figure, self.problem = None, ended or str(error)
        except Exception as error:  # of a view that a learner wrote
            if self._live is None:
                raise
            self.figure, self.problem = None, f"{type(error).__name__}: {error}"
        html = _html(self.figure) if self.figure is not None else ""
        self.redraw_s = time.monotonic() - started
        if self._live is not None:
            self._live.drawn(run, html, self.problem, self.redraw_s)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        if self._live is not None:
            return dict(self._live.box._repr_mimebundle_(**options)) | {"text/plain": str(self)}
        failed = "" if self.run is None or not self.problem else self.run._repr_html_()
        html = _html(self.figure) if self.figure is not None else failed
        return {"text/html": html + Document(*self._note()).html(), "text/plain": str(self)}

    def __str__(self) -> str:
        shown = self.problem if self.figure is None else str(self.figure)
        shown = shown or f"{self._job}: not measured yet"
        return Document(shown, *self._note()).text()

    __repr__ = __str__

    def _note(self) -> list[Line]:
        said = "; ".join(f"{n}: {', '.join(map(_said, v))}" for n, v in self._sliders.items())
        return [Note(f"Sliders in JupyterLab: {said}")] if said else []


class _Live:
    """The widgets: sliders, one line of status, the figure."""

    def __init__(self, explorer: Explorer) -> None:
        import ipywidgets as w

        self._explorer = explorer
        self._lock = threading.Lock()
        self._sliders = {
            name: w.SelectionSlider(
                options=[(_said(v), v) for v in _ascending(values)],
                value=values[0],
                description=name,
                continuous_update=False,
                style={"description_width": "auto"},
                layout=w.Layout(width="320px", margin="2px 24px 2px 0"),
            )
            for name, values in explorer._sliders.items()
        }
        self._quiet = False
        for slider in self._sliders.values():
            slider.observe(self._moved, names="value")
        self._status, self._figure = w.HTML(), w.HTML()
        look = w.HTML(style(), layout=w.Layout(display="none"))
        row = w.HBox(list(self._sliders.values()), layout=w.Layout(flex_flow="row wrap"))
        self.box = w.VBox([look, row, self._status, self._figure])

    def move(self, position: dict[str, Any]) -> None:
        self._quiet = True
        for name, value in position.items():
            self._sliders[name].value = value
        self._quiet = False
        self._moved(None)

    def _moved(self, _: Any) -> None:
        if not self._quiet:
            self._explorer.want({name: slider.value for name, slider in self._sliders.items()})

    def busy(self, position: dict[str, Any]) -> None:
        with self._lock:
            self._figure.add_class("ddpc-old")
            self._say(f"● running now: {_position(position)} …")

    def drawn(self, run: Run, html: str, problem: str, redraw_s: float) -> None:
        with self._lock:
            self._figure.value = html or run._repr_html_()
            self._figure.remove_class("ddpc-old")
            if html:
                where = _position({"ranks": run.ranks, **run.knobs})
                self._say(f"✓ measured now: {where}; launched, run and drawn in {redraw_s:.2f} s")
            else:
                self._say(f"✗ {problem}")

    def failed(self, problem: str) -> None:
        with self._lock:
            self._say(f"✗ {problem}")

    def _say(self, words: str) -> None:
        self._status.value = Document(Note(words), name="ddpc-said").body()


def _html(figure: Any) -> str:
    method = getattr(figure, "_repr_html_", None)
    return str(method()) if method is not None else f"<pre>{escape(str(figure))}</pre>"


def _ascending(values: list[Any]) -> list[Any]:
    """A slider's values from left to right: numbers by size, anything else as it was given."""
    numbers = all(isinstance(value, int | float) for value in values)
    return sorted(values) if numbers else values


def _position(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_said(value)}" for name, value in values.items())


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
