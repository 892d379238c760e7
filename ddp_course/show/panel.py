"""The live panel: what a run is doing now, with Stop, and pause, resume and kill -9 for each rank.

Threads. The launcher's thread only rings a bell (`Run.subscribe`); one painter thread for each live
panel looks at the run at most ten times a second and sends what has changed. Buttons arrive on
whatever thread the front end's messages are handled on. One lock guards all widgets.

When the run has ended the painter replaces the widgets by plain HTML of the same look: it stays
readable in a saved notebook, where no widget lives.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_course.errors import CourseError
from ddp_course.launcher.knobs import knobs_of
from ddp_course.show.document import (
    Document,
    Figure,
    Fold,
    Rank,
    State,
    Title,
    counted,
    page,
    style,
)
from ddp_course.show.result import run_document

if TYPE_CHECKING:
    from ddp_course.run.reader import Line
    from ddp_course.run.run import Lane, Run

_PERIOD_S = 0.1  # at most ten pictures a second
_TICK_S = 0.5  # the clock moves without news, too
_TAIL, _LONG_TAIL = 12, 400
_ROW_PX = 30
_FOR_TERMINALS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]"
)
_MOST_ROWS = 8  # of buttons; with more ranks one row serves the rank that is chosen


_hidden = threading.local()


def show(run: Run) -> Panel:
    """The panel of a run, to be displayed in the cell that is running; it then lives by itself."""
    return Panel(run, hidden=getattr(_hidden, "on", False))


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Launch without a panel in this thread: for views that show the run in their own way."""
    _hidden.on = True
    try:
        yield
    finally:
        _hidden.on = False


class Panel:
    """The panel of one run: in a notebook live, elsewhere as text."""

    def __init__(self, run: Run, *, hidden: bool = False) -> None:
        self._run, self._hidden = run, hidden
        self._bell = threading.Event()
        self._lock = threading.Lock()
        self._live: _Live | None = None
        self._handle: Any = None

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self._hidden:
            return
        with self._lock:
            self._live = self._live or _Live(self._run, self._bell)
            self._live.update()
        # A front end that does not know the widget (any longer) shows the text.
        bundle = dict(self._live.box._repr_mimebundle_()) | {"text/plain": str(self)}
        show_it: Any = display
        self._handle = show_it(bundle, raw=True, display_id=True)
        self._run.subscribe(lambda run: self._bell.set())
        threading.Thread(target=self._paint, name="panel", daemon=True).start()

    def html(self) -> str:
        """What the panel shows at this moment, without buttons."""
        return final_html(self._run) if self._run.done else live_html(self._run)

    def __str__(self) -> str:
        return text(self._run)

    __repr__ = __str__

    def _paint(self) -> None:
        assert self._live is not None
        while not self._run.done:
            self._bell.wait(_TICK_S)
            self._bell.clear()
            with self._lock:
                self._live.update()
            time.sleep(_PERIOD_S)
        with self._lock:
            self._live.update()
            final = {"text/html": final_html(self._run), "text/plain": str(self._run)}
            self._handle.update(final, raw=True)
            self._live.close()


class _Live:
    """The widgets: head with Stop, lanes with their buttons, the tail of the output."""

    def __init__(self, run: Run, bell: threading.Event) -> None:
        import ipywidgets as w

        self._run, self._bell = run, bell
        self._head, self._lanes, self._tail = w.HTML(), w.HTML(), w.HTML()
        for part in (self._head, self._lanes, self._tail):
            part.layout.margin = "0"
            part.layout.flex = "1 1 auto"
            part.layout.min_width = "0"
        self._stop = self._button("■ Stop", "stop the run and everything it started", run.stop)
        self._stop.button_style = "danger"
        self._more = w.ToggleButton(
            value=False,
            description="more lines",
            layout=w.Layout(width="auto", height="24px", flex="0 0 auto"),
        )
        self._more.observe(lambda change: bell.set(), names="value")
        self._rows, keys = self._buttons()
        look = w.HTML(style(), layout=w.Layout(display="none"))
        line = w.Layout(display="flex", align_items="flex-start", overflow="visible")
        self.box = w.VBox(
            [
                look,
                w.HBox([self._head, self._stop], layout=line),
                w.HBox([self._lanes, keys], layout=line),
                tail := w.HBox([self._tail, self._more], layout=line),
            ],
            layout=w.Layout(overflow="visible"),
        )
        tail.add_class("ddpc-ruled")
        self.box.add_class("ddpc-panel")

    def _buttons(self) -> tuple[list[_RankButtons], Any]:
        import ipywidgets as w

        if self._run.ranks <= _MOST_ROWS:
            rows = [_RankButtons(self, partial(int, rank)) for rank in range(self._run.ranks)]
            return rows, w.VBox([row.box for row in rows], layout=w.Layout(flex="0 0 auto"))
        choice = w.Dropdown(
            options=[(f"rank {rank}", rank) for rank in range(self._run.ranks)],
            layout=w.Layout(width="220px"),
        )
        choice.observe(lambda change: self._bell.set(), names="value")
        row = _RankButtons(self, lambda: choice.value)
        return [row], w.VBox([choice, row.box], layout=w.Layout(flex="0 0 auto"))

    def _button(self, words: str, tip: str, action: Callable[[], None]) -> Any:
        import ipywidgets as w

        button = w.Button(
            description=words,
            tooltip=tip,
            layout=w.Layout(width="auto", height="24px", flex="0 0 auto", margin="2px"),
        )

        def clicked(_: Any) -> None:
            action()
            self._bell.set()

        button.on_click(clicked)
        return button

    def update(self) -> None:
        """Send what has changed since the last time; the caller holds the lock."""
        lanes = self._run.lanes()
        self._head.value = _head(self._run)
        self._lanes.value = _lanes(self._run, lanes)
        many = _LONG_TAIL if self._more.value else _TAIL
        lines = self._run.tail(_LONG_TAIL)
        self._tail.value = _tail(lines[-many:], tall=self._more.value)
        self._more.layout.display = "none" if len(lines) <= _TAIL else ""
        self._stop.disabled = self._run.done
        for row in self._rows:
            row.update({lane.rank: lane.state for lane in lanes})

    def close(self) -> None:
        for widget in _with_children(self.box):
            for part in (widget, widget.layout, getattr(widget, "style", None)):
                if part is not None:
                    part.close()


class _RankButtons:
    """pause, resume and kill -9 for the rank that `which` names."""

    def __init__(self, live: _Live, which: Callable[[], int]) -> None:
        import ipywidgets as w

        run, self._which = live._run, which
        self._pause = live._button("‖ pause", "SIGSTOP", lambda: run.pause(which()))
        self._resume = live._button("▶ resume", "SIGCONT", lambda: run.resume(which()))
        self._kill = live._button("✗ kill -9", "SIGKILL", lambda: run.kill(which()))
        self.box = w.HBox(
            [self._pause, self._resume, self._kill],
            layout=w.Layout(height=f"{_ROW_PX}px", overflow="visible"),
        )

    def update(self, states: dict[int, str]) -> None:
        rank = self._which()
        state = states.get(rank, "")
        for button, on, sign in (
            (self._pause, state == "running", "SIGSTOP"),
            (self._resume, state == "paused", "SIGCONT"),
            (self._kill, state in ("running", "paused"), "SIGKILL"),
        ):
            button.disabled = not on
            button.tooltip = f"rank {rank}: {sign}"


def _with_children(widget: Any) -> list[Any]:
    inside = [w for child in getattr(widget, "children", ()) for w in _with_children(child)]
    return [*inside, widget]


def live_html(run: Run) -> str:
    """A running panel as plain HTML."""
    tail = f'<div class="ddpc-ruled">{_tail(run.tail(_TAIL))}</div>'
    body = _head(run) + _lanes(run, run.lanes()) + tail
    return page(f"<div class='ddpc-panel'>{body}</div>")


def final_html(run: Run) -> str:
    """A finished panel: lanes, the run's report card, and the whole output folded."""
    lines = run.tail(_LONG_TAIL + 1)
    count = counted(len(lines), "line")
    if len(lines) > _LONG_TAIL:
        lines, count = lines[1:], f"the last {_LONG_TAIL} lines; all are in run.lines"
    output = [Fold(f"output ({count})", Figure(_tail(lines, tall=True), ""))] if lines else []
    lanes = Figure(_lanes(run, run.lanes()), "")
    card = run_document(run).blocks
    return Document(Title(_name(run)), lanes, *card, *output, name="ddpc-panel").html()


def text(run: Run) -> str:
    """The panel as plain text."""
    if run.done:
        return str(run)
    lanes = [
        "  ".join(
            filter(
                None, (f"rank {n.rank}", _state(run, n).said, _steps(run, n), _loss(n), n.last_line)
            )
        )
        for n in run.lanes()
    ]
    return "\n".join([f"{_name(run)}: {run.state}", f"$ {run.command}", *lanes])


def _name(run: Run) -> str:
    knobs = "".join(f", {name}={value!r}" for name, value in run.knobs.items())
    return f"{run.job}, {counted(run.ranks)}{knobs}"


def _head(run: Run) -> str:
    command = escape(run.command)
    return (
        f'<div class="ddpc ddpc-head"><span class="ddpc-title">{escape(_name(run))}</span>'
        f'{State(run.state).html()}<span class="ddpc-clock">{run.elapsed_s:.1f} s</span></div>'
        f'<code class="ddpc ddpc-command" title="{command}">{command}</code>'
    )


def _lanes(run: Run, lanes: list[Lane]) -> str:
    rows = "".join(_lane(run, lane) for lane in lanes)
    losses = "" if any(lane.loss is not None for lane in lanes) else " ddpc-lossless"
    return f'<div class="ddpc ddpc-lanes{losses}">{rows}</div>'


def _lane(run: Run, lane: Lane) -> str:
    attempt = f' <span class="ddpc-quiet">try {lane.attempt + 1}</span>' if lane.attempt else ""
    line = escape(_legible(lane.last_line)[:300])
    return (
        f'<div class="ddpc-lane">{Rank(lane.rank).html()}'
        f'<span class="ddpc-lane-state">{_state(run, lane).html()}{attempt}</span>'
        f"{_bar(run, lane)}"
        f'<span class="ddpc-lane-loss">{escape(_loss(lane))}</span>'
        f'<code class="ddpc-lane-line" title="{line}">{line}</code></div>'
    )


def _state(run: Run, lane: Lane) -> State:
    """What the rank does: it waits in a call, or has ended with a code, or its state in a word."""
    if lane.doing.startswith("waits"):
        return State("waiting", f"{lane.doing} {lane.since_s:.1f} s")
    code = f" ({lane.exit_code})" if run.done and lane.exit_code else ""
    return State(lane.state, lane.state + code)


@lru_cache(maxsize=32)
def _goal(folder: Path, given: Any) -> int | None:
    """How many steps the job will take: its knob `steps`, given or by default; None: not known."""
    if given is None:
        with contextlib.suppress(CourseError):
            knob = knobs_of(folder / "job.py").get("steps")
            given = None if knob is None else knob.default
    return given if isinstance(given, int) and given > 0 else None


def _progress(run: Run, lane: Lane) -> tuple[int, int] | None:
    """(steps done, steps to do), or None where that is not known. Jobs count steps from 0."""
    goal = _goal(run.folder, run.knobs.get("steps"))
    if goal is None or lane.step is None:
        return None
    return max(0, min(lane.step + 1, goal)), goal


def _steps(run: Run, lane: Lane) -> str:
    progress = _progress(run, lane)
    if progress is not None:
        return f"{progress[0]} of {progress[1]} steps"
    return "" if lane.step is None else f"step {lane.step}"


def _bar(run: Run, lane: Lane) -> str:
    words = escape(_steps(run, lane))
    progress = _progress(run, lane)
    if progress is None:
        return f'<span class="ddpc-lane-step">{words}</span>'
    number, goal = progress
    return (
        f'<span class="ddpc-lane-step"><span class="ddpc-bar" role="progressbar" '
        f'aria-valuenow="{number}" aria-valuemax="{goal}" aria-label="{words}">'
        f'<span style="width:{100 * number / goal:.0f}%"></span></span>{number} / {goal}</span>'
    )


def _loss(lane: Lane) -> str:
    return "" if lane.loss is None else f"loss {lane.loss:.4g}"


def _legible(text: str) -> str:
    """Without what only a terminal understands: colours, cursor movements, the bell."""
    return _FOR_TERMINALS.sub("", text)


def _tail(lines: list[Line], *, tall: bool = False) -> str:
    if not lines:
        return '<div class="ddpc ddpc-tail ddpc-quiet">no output yet</div>'
    rows = "".join(
        f'<div class="ddpc-line"><span class="ddpc-time">{line.t_s:.2f}</span>'
        f"{Rank(line.rank).html()}"
        f'<code class="ddpc-{"err" if line.stream == "stderr" else "out"}">'
        f"{escape(_legible(line.words)[:2000]) or '&nbsp;'}</code></div>"
        for line in lines
    )
    return f'<div class="ddpc ddpc-tail {"ddpc-tall" if tall else ""}"><div>{rows}</div></div>'
