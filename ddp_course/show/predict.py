"""predict(…): a question that is answered before the run, and revealed by the run's own number."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ddp_course.errors import BadArgument, shown
from ddp_course.launcher.session import session
from ddp_course.show.bars import Bars
from ddp_course.show.document import Document, Line, Note, Shown, Title, style


def predict(
    question: str,
    *,
    choices: Sequence[Any] = (),
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
) -> Prediction:
    """Ask for a prediction: one of the choices, or, without choices, a number in `unit`.

    In a notebook it shows the question with buttons or a number field. It never waits: a notebook
    that is run from top to bottom goes on without a prediction, and `reveal` says so.

    low, high: the bounds of the number, both included.
    """
    if choices and (unit or low is not None or high is not None):
        raise BadArgument(
            "A prediction is a choice or a number, not both.",
            action="give choices=[…], or unit=, low= and high=",
        )
    if not isinstance(choices, list | tuple) or len(set(map(str, choices))) != len(choices):
        raise BadArgument(
            f"choices cannot be {shown(choices)}.", action='give distinct ones: choices=["a", "b"]'
        )
    bounds = [_number(bound) for bound in (low, high) if bound is not None]
    if bounds != sorted(bounds):
        raise BadArgument(
            f"No number is at least {low} and at most {high}.", action="give low= below high="
        )
    prediction = Prediction(question, tuple(choices), unit, low, high)
    prediction._show()
    return prediction


class Prediction(Shown):
    """A question, and what the learner said before the run, if anything.

    value: the committed prediction, or None. Committed once, it is locked.
    """

    def __init__(
        self,
        question: str,
        choices: tuple[Any, ...],
        unit: str,
        low: float | None,
        high: float | None,
    ) -> None:
        self.question, self.choices, self.unit = question, choices, unit
        self.low, self.high = low, high
        self.value: Any = None
        self.committed_at: float | None = None  # seconds since the epoch
        self._lock = threading.Lock()
        self._live: _Live | None = None
        self._shown_in: object = None

    @property
    def committed(self) -> bool:
        return self.committed_at is not None

    def commit(self, value: Any) -> Prediction:
        """Commit and lock the prediction.

        Raises BadArgument for a value that is no answer to the question, and for a second one.
        """
        answer = self._answer(value)
        with self._lock:
            if self.committed:
                raise BadArgument(
                    f"This prediction is locked: {self._said(self.value)}.",
                    cause="it was committed before",
                    action="run the cell of the question again to start over",
                )
            self.value, self.committed_at = answer, time.time()
        if self._live is not None:
            self._live.update()
        return self

    def reveal(self, actual: Any, note: str = "") -> Reveal:
        """The prediction against what was measured; works without a prediction, too.

        actual: one of the choices, or the measured number in the prediction's unit.
        Raises BadArgument for an `actual` that is neither.
        """
        if self.choices and actual not in self.choices:
            raise BadArgument(
                f"{actual!r} is none of the choices.", action=f"reveal one of {self._choices}"
            )
        if not self.choices:
            actual = _number(actual)
        return Reveal(
            self.question, self.value, self.committed, actual, self.unit, bool(self.choices), note
        )

    def document(self) -> Document:
        options = [Note(f"choices: {self._choices}")] if self.choices else []
        return Document(Title(self.question), *options, self._status)

    def _ipython_display_(self) -> None:
        """For a cell that ends with the prediction, which `predict` has shown already."""
        self._show()

    def _show(self) -> None:
        cell = _cell()
        if cell is None or cell == self._shown_in:
            return
        from IPython.display import display

        self._shown_in = cell
        if session.in_background:
            self._live = self._live or _Live(self)
            bundle = dict(self._live.box._repr_mimebundle_())
        else:
            bundle = {"text/html": self._repr_html_()}
        show_it: Any = display
        show_it({**bundle, "text/plain": str(self)}, raw=True)

    def _answer(self, value: Any) -> Any:
        if self.choices:
            if value not in self.choices:
                raise BadArgument(
                    f"{value!r} is none of the choices.", action=f"commit one of {self._choices}"
                )
            return value
        number = _number(value)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= number <= high:
            raise BadArgument(
                f"{number:g} is out of bounds.", action=f"give a number: {self._bounds}"
            )
        return number

    @property
    def _bounds(self) -> str:
        """The bounds in words, e.g. "1 to 100"; "" without any."""
        if self.low is not None and self.high is not None:
            return f"{self.low:.10g} to {self.high:.10g}"
        if self.low is not None:
            return f"{self.low:.10g} or more"
        return "" if self.high is None else f"{self.high:.10g} or less"

    @property
    def _choices(self) -> str:
        return ", ".join(map(str, self.choices))

    @property
    def _status(self) -> Line:
        if self.committed_at is None:
            return Note("No prediction was committed.")
        clock = time.strftime("%H:%M:%S", time.localtime(self.committed_at))
        return Note(f"✓ You predicted {self._said(self.value)}, at {clock}; it is locked.")

    def _said(self, value: Any) -> str:
        return _said(value, self.unit)


class _Live:
    """The widgets of a prediction."""

    def __init__(self, prediction: Prediction) -> None:
        import ipywidgets as w

        self._prediction = prediction
        self._head = w.HTML(Document(Title(prediction.question)).body())
        self._status = w.HTML()
        if prediction.choices:
            self._inputs = [self._choice(choice) for choice in prediction.choices]
        else:
            self._inputs = self._number_field()
        look = w.HTML(style(), layout=w.Layout(display="none"))
        answers = w.HBox(self._inputs, layout=w.Layout(flex_flow="row wrap"))
        self.box = w.VBox([look, self._head, answers, self._status])
        self.box.add_class("ddpc-predict")
        self.update()

    def _choice(self, choice: Any) -> Any:
        import ipywidgets as w

        button = w.Button(description=str(choice), layout=w.Layout(width="auto"))
        button.on_click(lambda _: self._commit(choice))
        return button

    def _number_field(self) -> list[Any]:
        import ipywidgets as w

        prediction = self._prediction
        field = w.Text(placeholder="a number", layout=w.Layout(width="120px"))
        words = [prediction.unit, prediction._bounds and f"({prediction._bounds})"]
        hint = w.HTML(escape(" ".join(filter(None, words))))
        button = w.Button(description="Commit", button_style="primary")
        button.on_click(lambda _: self._commit_text(field.value))
        return [field, hint, button]

    def _commit_text(self, text: str) -> None:
        if not text.strip():
            self.update(problem="The box is empty: write a number, then press Commit.")
            return
        value: Any = text
        with contextlib.suppress(ValueError):
            value = float(text)
        self._commit(value)

    def _commit(self, value: Any) -> None:
        try:
            self._prediction.commit(value)
        except BadArgument as error:
            self.update(problem=str(error))

    def update(self, problem: str = "") -> None:
        p = self._prediction
        if problem:
            said = Line(f"✗ {problem}")
        elif p.committed:
            said = p._status
        else:
            said = Note("Commit a prediction, then run the next cell.")
        self._status.value = Document(said).body()
        for widget in self._inputs:
            if hasattr(widget, "disabled"):
                widget.disabled = p.committed
            if p.choices and p.committed and widget.description == str(p.value):
                widget.button_style = "primary"


@dataclass(frozen=True, repr=False)
class Reveal(Shown):
    """A prediction beside what the run measured; it draws itself."""

    question: str
    predicted: Any
    committed: bool
    actual: Any
    unit: str
    is_choice: bool
    note: str = ""

    @property
    def right(self) -> bool | None:
        """For a choice: whether it was right. None without a prediction, and for a number."""
        return self.predicted == self.actual if self.committed and self.is_choice else None

    @property
    def ratio(self) -> float | None:
        """For a number: measured / predicted; None without a prediction, or if it was 0."""
        if not self.committed or self.is_choice or self.predicted == 0:
            return None
        return float(self.actual / self.predicted)

    @property
    def message(self) -> str:
        """The one thing that the view says."""
        measured = f"this run {'says' if self.is_choice else 'measured'} {self._said(self.actual)}"
        if not self.committed:
            return f"No prediction was committed; {measured}."
        words = f"You predicted {self._said(self.predicted)}; {measured}"
        if self.right is not None:
            return f"{'✓ Right' if self.right else '✗ Not quite'}: {words[0].lower()}{words[1:]}."
        return f"{words}." if self.ratio is None else f"{words}: {_short(self.ratio, 2)} × as much."

    def _said(self, value: Any) -> str:
        return _said(value, self.unit)

    def document(self) -> Document:
        drawn = []
        if self.committed and not self.is_choice:
            values: dict[int | str, float] = {"predicted": self.predicted, "measured": self.actual}
            drawn = [Bars(self.question, values, self.unit).figure()]
        note = [self.note] if self.note else []
        return Document(Title(self.message), *drawn, *note)


def _said(value: Any, unit: str) -> str:
    text = _short(value, 4) if isinstance(value, float) else str(value)
    return f"{text} {unit}".rstrip()


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text else text


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadArgument(f"{value!r} is not a number.", action="give a plain number")
    return float(value)


def _cell() -> object:
    """The cell that is running, or None outside a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return shell, shell.execution_count
