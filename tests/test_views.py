"""Views: what they show, as HTML and as text, and that what a job prints stays text."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
from test_traces import bucket, step, write

from ddp_course import (
    attempts,
    collectives,
    compare,
    diagnose,
    differences,
    each_rank,
    explore,
    launch,
    parts,
    predict,
    show_diff,
    show_job,
    stages,
    table,
    timeline,
)
from ddp_course.errors import BadArgument, NoEvidence
from ddp_course.launcher import launch as launcher
from ddp_course.launcher.session import session
from ddp_course.run.failure import Failure
from ddp_course.run.reader import Line
from ddp_course.run.run import Lane
from ddp_course.show import panel, svg
from ddp_course.show import predict as predicting
from ddp_course.show.bars import Bars, bars
from ddp_course.show.document import Document

EVIL = "<script>alert('x')</script>&<b>"


class FakeRun:
    """A Run that is moved by hand."""

    def __init__(self, folder: Path, ranks: int = 2, **knobs: Any) -> None:
        self.folder, self.ranks, self.knobs = folder, ranks, knobs
        self.job, self.command, self.state = "train_ddp", "python -m torch.distributed.run x", ""
        self.state, self.elapsed_s, self.done, self.ok = "running", 1.25, False, True
        self.failure: Failure | None = None
        self.rows = [Lane(rank, "running", 100 + rank) for rank in range(ranks)]
        self.printed: list[Line] = []
        self.traces: dict[int, Path] = {}
        self.asked: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.ended = "done"
        self.callbacks: list[Callable[[Any], None]] = []
        self.calls: list[tuple[Any, ...]] = []

    def lanes(self) -> list[Lane]:
        return self.rows

    def tail(self, count: int) -> list[Line]:
        return self.printed[-count:]

    def subscribe(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def wait(self) -> FakeRun:
        return self

    def stop(self) -> None:
        self.calls.append(("stop",))

    def pause(self, rank: int) -> None:
        self.calls.append(("pause", rank))

    def resume(self, rank: int) -> None:
        self.calls.append(("resume", rank))

    def kill(self, rank: int) -> None:
        self.calls.append(("kill", rank))

    def summary(self) -> str:
        return "the report card in a line"

    def __str__(self) -> str:
        return "the report card as text"

    def document(self) -> Document:
        card = Document("the report card")
        return card if self.failure is None else self.failure.document()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    return FakeRun(tmp_path)


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in JupyterLab: launches return at once, views are widgets."""
    monkeypatch.setattr(session, "in_background", True)
    yield
    for live in launcher.live_runs():
        live.stop()
        live.wait()


def plain(html: str) -> str:
    """The words of an HTML text."""
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL)
    return re.sub(r":\s+", ": ", text)


# The look


GREYS = {  # of JupyterLab's two themes
    "light": {"layout-color2": 0xEE, "layout-color3": 0xBD, "content-font-color1": 0x21},
    "dark": {"layout-color2": 0x42, "layout-color3": 0x61, "content-font-color1": 0xFF},
}


def grey(colour: str, theme: dict[str, int]) -> float:
    """The grey that a theme makes of one of our colours, or of a mixture of two, 0…255."""
    first, *second = (theme[name] for name in re.findall(r"--jp-([a-z0-9-]+)", colour))
    share = float((re.findall(r"(\d+)%", colour) or ["100"])[0]) / 100
    return share * first + (1 - share) * sum(second)


def contrast(one: float, other: float) -> float:
    """The ratio of luminances that WCAG 2 defines, for greys."""
    low, high = sorted(((value / 255 + 0.055) / 1.055) ** 2.4 for value in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", GREYS.values(), ids=GREYS)
def test_forward_and_backward_differ_in_both_themes(theme: dict[str, int]) -> None:
    forward, backward = grey(svg.PALE, theme), grey(svg.STRONG, theme)
    assert contrast(forward, backward) > 1.5
    for box in (forward, backward):
        assert contrast(box, grey(svg.TEXT, theme)) > 4.5


@pytest.mark.parametrize("largest", [0.003, 0.7, 1, 9.99, 123, 45_678])
def test_ticks_are_round_and_inside(largest: float) -> None:
    marks = svg.ticks(largest)
    assert marks[0] == 0
    assert marks[-1] <= largest * (1 + 1e-9)
    assert 4 <= len(marks) <= 12


# The panel


def test_the_panel_shows_each_rank(run: FakeRun) -> None:
    run.knobs = {"steps": 10}
    run.rows[0].step, run.rows[0].loss, run.rows[0].last_line = 4, 0.12345, "hello from 0"
    run.rows[1].state = "paused"
    words = plain(panel.show(run).html())
    assert "train_ddp, 2 ranks, steps=10" in words
    assert "5 / 10" in words
    assert "loss 0.1235" in words
    assert "hello from 0" in words
    assert "‖ paused" in words
    assert run.command in words
    said = str(panel.show(run))
    for part in ("5 of 10 steps", "loss 0.1235", "hello from 0", "paused", run.command):
        assert part in said


def test_the_number_of_steps_may_be_the_jobs_own(run: FakeRun) -> None:
    (run.folder / "job.py").write_text('p.add_argument("--steps", type=int, default=8, help="")\n')
    run.rows[0].step = 1
    assert "2 / 8" in plain(panel.show(run).html())


def test_colours_for_a_terminal_are_left_out(run: FakeRun) -> None:
    red = "\x1b[1;31mred\x1b[0m\x1b[K \x1b]0;heading\x07[2] 漢\t\a\0ok"
    run.rows[0].last_line = red
    run.printed = [Line(0.1, 0, "stdout", red)]
    for run.done in (False, True):
        html = panel.show(run).html()
        assert html.count("red [2] 漢\tok") >= 2
        assert not re.search(r"[\x00\x07\x1b]|heading|31m", html)


def test_what_a_job_prints_stays_text(run: FakeRun) -> None:
    run.job = run.command = run.rows[0].last_line = EVIL
    run.knobs = {"name": EVIL}
    run.printed = [Line(0.1, 0, "stdout", EVIL), Line(0.2, None, "stderr", EVIL)]
    for done in (False, True):
        run.done = done
        html = panel.show(run).html()
        assert "<script" not in html
        assert "<b>" not in html
        assert html.count("&lt;script&gt;") >= 5


def test_a_rank_that_waits_for_a_paused_one_is_not_called_running(run: FakeRun) -> None:
    run.rows[0].doing, run.rows[0].since_s = "waits in all_reduce", 4.2
    run.rows[1].state, run.rows[1].doing = "paused", "paused"
    words = plain(panel.show(run).html())
    assert "waits in all_reduce 4.2 s" in words and "paused" in words
    assert words.count("running") == 1, "the run is, and no rank"
    assert "rank 0  waits in all_reduce 4.2 s" in str(panel.show(run))


def test_a_finished_panel_ends_with_the_first_failure(run: FakeRun) -> None:
    run.done, run.state, run.ok = True, "done", False
    run.failure = Failure(1, "rank 1: ValueError: boom", 1, "Traceback …", {}, {0: "lost a peer"})
    run.rows[1].state, run.rows[1].exit_code = "killed", -9
    run.printed = [Line(0.1, 0, "stdout", "one"), Line(0.2, 1, "stderr", "two")]
    words = plain(panel.show(run).html())
    assert "killed (-9)" in words
    assert "output (2 lines)" in words
    assert words.index("First failure: rank 1: ValueError: boom") < words.index("Traceback …")
    assert str(panel.show(run)) == str(run)


def test_a_panel_says_that_it_shows_only_the_last_lines(run: FakeRun) -> None:
    run.done, run.state, run.ok = True, "done", True
    run.printed = [Line(0.1, 0, "stdout", f"line {number}") for number in range(401)]
    words = plain(panel.show(run).html())
    assert "output (the last 400 lines; all are in run.lines)" in words
    assert "line 400" in words and "line 1 " in words and "line 0 " not in words
    run.printed.pop()
    assert "output (400 lines)" in plain(panel.show(run).html())


def buttons(live: Any) -> dict[str, Any]:
    found = {}
    for widget in panel._with_children(live.box):
        if type(widget).__name__ == "Button":
            words = widget.tooltip if "SIG" in widget.tooltip else widget.description
            found[words] = widget
    return found


def test_buttons_act_on_their_rank_and_only_when_it_makes_sense(run: FakeRun) -> None:
    bell = threading.Event()
    live = panel._Live(run, bell)  # type: ignore[arg-type]
    live.update()
    own = buttons(live)
    assert own["rank 0: SIGSTOP"].disabled is False
    assert own["rank 0: SIGCONT"].disabled is True
    own["rank 1: SIGKILL"].click()
    own["rank 0: SIGSTOP"].click()
    own["■ Stop"].click()
    assert run.calls == [("kill", 1), ("pause", 0), ("stop",)]
    assert bell.is_set()
    run.rows[0].state, run.rows[1].state = "paused", "killed"
    live.update()
    own = buttons(live)
    assert own["rank 0: SIGSTOP"].disabled is True
    assert own["rank 0: SIGCONT"].disabled is False
    assert all(own[f"rank 1: {name}"].disabled for name in ("SIGSTOP", "SIGCONT", "SIGKILL"))


def test_many_ranks_share_one_row_of_buttons(tmp_path: Path) -> None:
    run: Any = FakeRun(tmp_path, ranks=64)
    live = panel._Live(run, threading.Event())
    live.update()
    assert len(buttons(live)) == 4
    choice = next(w for w in panel._with_children(live.box) if type(w).__name__ == "Dropdown")
    choice.value = 63
    live.update()
    buttons(live)["rank 63: SIGKILL"].click()
    assert run.calls == [("kill", 63)]


def test_a_closed_panel_leaves_no_widget(run: FakeRun) -> None:
    def alive() -> int:
        return len(ipywidgets.widgets.widget._instances)

    before = alive()
    live = panel._Live(run, threading.Event())  # type: ignore[arg-type]
    assert alive() > before + 20
    live.close()
    assert alive() == before


# The timeline


@pytest.fixture
def traced(run: FakeRun, tmp_path: Path) -> FakeRun:
    first, second = step(0, bucket(12, 26)), step(100, bucket(112, 118), bucket(116, 128, 500))
    late = step(100, bucket(114, 118), bucket(116, 128, 500))
    run.traces = {0: write(tmp_path, 0, first + second), 1: write(tmp_path, 1, first + late)}
    return run


def test_the_timeline_tells_its_numbers(traced: FakeRun) -> None:
    figure = timeline(traced)
    assert figure.hidden_share == pytest.approx(14 / 30)
    assert figure.hidden_share_of == pytest.approx({0: 8 / 16, 1: 6 / 14})
    assert figure.exposed_ms == pytest.approx({0: 8, 1: 8})
    assert figure.waiting_ms == pytest.approx({0: 2, 1: 0})
    assert figure.communication_ms == pytest.approx({0: 16, 1: 14})
    assert figure.collectives == {0: 2, 1: 2}
    assert figure.step_ms == pytest.approx(32)
    for shown in (plain(figure._repr_html_()), str(figure)):
        assert "47 % of the communication is hidden behind computation" in shown
        assert "step 2 of 2 traced" in shown
        assert "|communication ∩ compute| / |communication|" in shown
        for number in ("16.0", "14.0", "50 %", "43 %", "8.0", "2.0"):
            assert number in shown
    assert f'aria-label="{figure.alt}"' in figure.svg
    assert "rank 0 communicates for 16.0 ms, 8.0 ms of it exposed" in figure.alt


def test_the_timeline_shows_the_chosen_step_and_ranks(traced: FakeRun) -> None:
    figure = timeline(traced, step=0, ranks=[1])
    assert figure.collectives == {0: 1, 1: 1}
    assert "step 1 of 2 traced" in str(figure)
    assert "rank 0" not in figure.svg
    with pytest.raises(BadArgument, match="2 steps"):
        timeline(traced, step=2)
    with pytest.raises(BadArgument, match="rank 5"):
        timeline(traced, ranks=[5])


@pytest.mark.parametrize(
    "wrong", [{"step": "x"}, {"step": 9}, {"ranks": 1}, {"ranks": []}], ids=str
)
def test_the_timeline_names_the_steps_and_ranks_there_are(
    traced: FakeRun, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadArgument, match="What to do"):
        timeline(traced, **wrong)


def test_a_step_without_communication_says_so(run: FakeRun, tmp_path: Path) -> None:
    run.traces = {0: write(tmp_path, 0, step(0))}
    figure = timeline(run)
    assert figure.hidden_share is None
    assert "No communication" in str(figure)
    assert "No communication" in figure._repr_html_()


def test_a_run_without_a_trace_says_how_to_get_one(run: FakeRun) -> None:
    with pytest.raises(NoEvidence) as refused:
        timeline(run)
    assert refused.value.action == "launch('train_ddp', ranks=2, trace=True)"
    run.asked = {"trace": True}
    with pytest.raises(NoEvidence, match="no rank made a process group") as refused:
        timeline(run)
    assert "trace=True" not in str(refused.value)  # no advice to do what was done


DRAW = """
import sys
from pathlib import Path
from types import SimpleNamespace
from ddp_course.show.bars import Bars
from ddp_course.show.timeline import timeline
traces = {rank: Path(sys.argv[1], f"trace-{rank}.json") for rank in (0, 1)}
run = SimpleNamespace(job="x", ranks=2, traces=traces, wait=lambda: None)
print(timeline(run)._repr_html_() + Bars("x", {0: 1.0})._repr_html_())
"""


def test_figures_of_one_page_share_no_name(traced: FakeRun) -> None:
    """Not even one that another kernel drew into another notebook of the same page."""
    pages = [timeline(traced)._repr_html_() + Bars("x", {0: 1.0})._repr_html_() for _ in range(2)]
    for _ in range(2):
        drawn = subprocess.run(
            [sys.executable, "-c", DRAW, str(traced.folder)], capture_output=True, check=True
        )
        pages.append(drawn.stdout.decode())
    ids = [name for page in pages for name in re.findall(r' id="([^"]+)"', page)]
    assert len(ids) > 40 and len(ids) == len(set(ids))
    for page in pages:
        rules = "".join(re.findall(r"<style.*?</style>", page, flags=re.DOTALL))
        assert rules.count("<style") == 2 and "*{" not in rules, "no rule for the whole page"
        used = re.findall(r"url\(#([^)]+)\)", page)
        assert used and set(used) <= set(re.findall(r' id="([^"]+)"', page))


def test_a_real_trace() -> None:
    run = launch("overlap_buckets", ranks=2, trace=True, bucket_mb=1.0, layers=4)
    figure = timeline(run)
    assert set(figure.communication_ms) == {0, 1}
    assert figure.collectives[0] == figure.collectives[1] >= 2
    for rank in figure.ranks:
        assert [span.name for span in rank.spans] == ["forward", "backward", "optimizer"]
        assert all(c.op == "all_reduce" and c.elements for c in rank.collectives)
        assert all(c.start_ns <= c.arrived_ns <= c.end_ns for c in rank.collectives)
        assert 0 <= rank.exposed_ms <= rank.communication_ms
        assert rank.waiting_ms <= rank.communication_ms
    # The bands of both ranks lie on one clock: neither can leave a collective before both came in.
    for ours, theirs in zip(figure.ranks[0].collectives, figure.ranks[1].collectives, strict=True):
        assert ours.arrived_ns <= theirs.end_ns
        assert theirs.arrived_ns <= ours.end_ns


# Bars


def test_bars_show_a_number_of_each_rank() -> None:
    figure = Bars("loss of each rank", {0: 1.5, 1: -0.25}, "nats")
    assert figure.alt == "loss of each rank: rank 0 1.5 nats, rank 1 -0.25 nats"
    for shown in (plain(figure._repr_html_()), str(figure)):
        assert "1.5 nats" in shown
        assert "rank 1" in shown
    assert Bars("all zero", {0: 0.0}).svg


# Diffs


def test_parts_show_several_numbers_of_one_rank() -> None:
    run = launch("hello_ranks", ranks=2, steps=1)
    shown = parts("waited_ms", "total", rank=1)(run)
    assert shown.values == {"waited": run.value("waited_ms", 1), "total": 3.0}
    assert "rank 1 of hello_ranks" in shown.alt and "total 3 ms" in shown.alt
    with pytest.raises(NoEvidence, match="'nothing'"):
        parts("nothing")(run)


def test_runs_are_compared_in_a_table() -> None:
    two, four = launch("hello_ranks", ranks=2, steps=1), launch("hello_ranks", ranks=4, steps=1)
    shown = compare({"two <b>": two, "four": four}, "total", "backend", rank=1)
    assert shown.rows == {"two <b>": (3, "gloo"), "four": (10, "gloo")}
    assert str(shown).splitlines()[1].split() == ["two", "<b>", "3", "gloo"]
    assert "<b>" not in shown._repr_html_() and "two &lt;b&gt;" in shown._repr_html_()


def test_a_comparison_says_what_is_missing() -> None:
    two, one = launch("hello_ranks", ranks=2, steps=1), launch("hello_ranks", ranks=1, steps=1)
    assert compare({"two": two, "one": one}, "total", rank=1).rows["one"] == (None,)
    assert "–" in str(compare({"two": two, "one": one}, "total", rank=1))
    with pytest.raises(NoEvidence, match="'nothing'"):
        compare({"two": two}, "total", "nothing")
    with pytest.raises(BadArgument, match="nothing to compare"):
        compare({}, "total")


def test_what_a_run_reported_is_a_table() -> None:
    run = launch("hello_ranks", ranks=2, steps=2)
    shown = table(run, "step", "total", "nothing")
    assert shown.rows == ((0, 3, None), (1, 3, None)) and shown.ranks == ()
    assert str(shown).splitlines()[1].split() == ["0", "3", "–"]
    both = table(run, "step", rank=None)
    assert both.ranks == (0, 0, 1, 1) and "rank&nbsp;1" in both._repr_html_()
    with pytest.raises(NoEvidence, match="'nothing'"):
        table(run, "nothing")
    with pytest.raises(BadArgument, match="no columns"):
        table(run)


def test_ranks_are_compared_in_a_table() -> None:
    run = launch("hello_ranks", ranks=2, steps=2)
    assert each_rank(run, "total", "backend").rows == {"rank 0": (3, "gloo"), "rank 1": (3, "gloo")}
    with pytest.raises(NoEvidence, match="'nothing'"):
        each_rank(run, "total", "nothing")
    with pytest.raises(BadArgument, match="no columns"):
        each_rank(run)


def test_a_difference_is_a_number_and_words() -> None:
    whole = launch("train_whole_model", ranks=1)
    cut = launch("train_pipeline", ranks=2)
    shown = differences({"itself": whole, "in two": cut}, whole)
    assert shown.words == {"itself": "exactly equal", "in two": "equal up to rounding"}
    assert 0 < shown.values["in two"] < 1e-8, "the pieces of all ranks, put together"
    assert str(shown).splitlines()[1].split() == ["itself", "0", "exactly", "equal"]
    one, two = launch("hello_ranks", ranks=1, steps=1), launch("hello_ranks", ranks=2, steps=1)
    assert differences({"two": two}, one, "total").words == {"two": "different"}
    with pytest.raises(BadArgument, match="the oracle 1210"):
        differences({"halves": cut}, launch("train_ddp", ranks=1))


def test_a_diff_shows_what_changed_and_hides_the_rest(tmp_path: Path) -> None:
    lines = [f"x{number} = {number}" for number in range(40)]
    (tmp_path / "a_job.py").write_text("\n".join(lines))
    (tmp_path / "b_job.py").write_text("\n".join([*lines[:20], f"y = '{EVIL}'", *lines[21:], "z"]))
    shown = show_diff(tmp_path / "a_job.py", tmp_path / "b_job.py")
    assert (shown.added, shown.removed) == (2, 1)
    assert "a_job → b_job: 2 lines added, 1 removed" in str(shown)
    assert "-x20 = 20" in str(shown)
    html = shown._repr_html_()
    assert "<script" not in html
    short, whole = html.split("<details>")
    assert "x19" in plain(short)
    assert "x10" not in plain(short)
    assert "x10" in plain(whole)
    assert "−" in plain(short)
    assert "+" in plain(short)


def test_equal_jobs_have_an_empty_diff() -> None:
    shown = show_diff("hello_ranks", "hello_ranks")
    assert (shown.added, shown.removed) == (0, 0)
    assert shown._repr_html_()


def test_a_job_shows_itself_whole() -> None:
    job = show_job("hello_ranks")
    assert "dist.all_reduce(number)" in str(job)
    assert "dist.all_reduce(number)" in plain(job._repr_html_()).replace("  ", "")
    with pytest.raises(BadArgument, match="hello_ranks"):
        show_job("helo_ranks")


def test_a_docstring_is_folded_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "a_job.py").write_text('"""One.\n\nMore of it.\n"""\n\nimport os\n')
    (tmp_path / "b_job.py").write_text('"""Other.\n"""\n\nimport os\n\nimport sys\n')
    shown = show_diff(tmp_path / "a_job.py", tmp_path / "b_job.py")
    assert (shown.added, shown.removed) == (1, 0), "an empty line says nothing"
    short, whole = map(plain, shown._repr_html_().split("<details>"))
    assert "Other" not in str(shown) + short and "Other" in whole and "More of it" in whole
    assert "import sys" in " ".join(short.split()) and "+import sys" in str(shown)


# Predictions


def test_a_choice_is_committed_once_and_revealed() -> None:
    guess = predict("Who waits?", choices=["rank 0", "rank 1"])
    assert "No prediction was committed." in str(guess)
    assert "rank 0, rank 1" in str(guess)
    assert guess.reveal("rank 1").message.startswith("No prediction was committed; this run says")
    with pytest.raises(BadArgument, match="none of the choices"):
        guess.commit("rank 7")
    guess.commit("rank 0")
    with pytest.raises(BadArgument, match="locked"):
        guess.commit("rank 1")
    assert guess.value == "rank 0"
    wrong, right = guess.reveal("rank 1"), guess.reveal("rank 0", "as always")
    assert (wrong.right, right.right) == (False, True)
    assert "✗ Not quite: you predicted rank 0; this run says rank 1." in str(wrong)
    assert "as always" in plain(right._repr_html_())
    with pytest.raises(BadArgument, match="none of the choices"):
        guess.reveal("rank 7")


def test_a_number_is_revealed_as_a_ratio() -> None:
    guess = predict("How long does a step take?", unit="ms", low=0, high=1000)
    for wrong in (-1, 1001, float("nan"), "ten", True):
        with pytest.raises(BadArgument):
            guess.commit(wrong)
    guess.commit(20)
    shown = guess.reveal(50.0)
    assert shown.ratio == pytest.approx(2.5)
    assert "You predicted 20 ms; this run measured 50 ms: 2.5 × as much." in str(shown)
    assert "predicted 20 ms, measured 50 ms" in shown._repr_html_()
    with pytest.raises(BadArgument):
        guess.reveal("long")


@pytest.mark.parametrize("unit", ["ms", "% of the time of save"])
def test_bars_leave_room_for_what_is_said_of_them(unit: str) -> None:
    drawn = Bars("a title", {"predicted": 3.0, "async_save_and_wait": 17.35}, unit).svg
    found = re.findall(r'<text .*?x="([0-9.]+)".*?>(.+?)</', drawn)
    texts = [(float(x), len(said)) for x, said in found]
    width = float(re.findall(r'viewBox="0 0 ([0-9.]+)', drawn)[0])
    first_box = float(re.findall(r'd="M ([0-9.]+)', drawn)[-1])
    assert len(texts) == 4
    for x, letters in texts:  # 1 pt is 4/3 px, and a letter of 12 px is about 6.5 px wide
        assert x + 6.5 * 3 / 4 * letters < (first_box if x == 0 else width)


@pytest.mark.parametrize(
    ("measured", "said"),
    [(996.0, "332 ×"), (298.9, "100 ×"), (12_345.6, "12,346 ms"), (0.00003, "3e-05 ms")],
)
def test_large_numbers_are_said_without_an_exponent(measured: float, said: str) -> None:
    guess = predict("How long?", unit="ms", low=0, high=20_000)
    guess.commit(3)
    message = guess.reveal(measured).message
    assert said in message
    assert "e+" not in message


def test_a_number_without_a_prediction_is_still_shown() -> None:
    guess = predict("How many?", unit="buckets")
    assert "No prediction was committed; this run measured 8 buckets." in str(guess.reveal(8))
    with pytest.raises(BadArgument, match="not both"):
        predict("Both?", choices=["a"], unit="ms")


def test_the_box_of_a_number_begins_empty() -> None:
    guess = predict("How long does a step take?", unit="ms", low=1, high=10_000)
    live = predicting._Live(guess)
    guess._live = live
    box, hint, commit = live._inputs
    assert (box.value, hint.value) == ("", "ms (1 to 10000)")
    for text, said in (("", "The box is empty"), ("ten", "not a number"), ("0", "1 to 10000")):
        box.value = text
        commit.click()
        assert said in live._status.value
        assert not guess.committed
    box.value = " 20 "
    commit.click()
    assert guess.value == 20
    assert box.disabled and commit.disabled


@pytest.mark.parametrize(
    "wrong",
    [
        {"choices": 5}, {"choices": "ab"}, {"choices": [1, 1]}, {"low": 5, "high": 1},
        {"low": "a"}, {"high": math.nan},
    ],
    ids=str,
)  # fmt: skip
def test_a_question_that_nobody_can_answer_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match="What to do"):
        predict("what?", **wrong)


@pytest.mark.parametrize("no_run", [None, "train_ddp", Path("runs"), 3], ids=str)
def test_what_is_no_run_is_answered_in_words(no_run: Any) -> None:
    views: list[Callable[[Any], Any]] = [
        timeline,
        attempts,
        stages,
        lambda run: compare({"a": run}, "loss"),
        lambda run: table(run, "loss"),
    ]
    if not isinstance(no_run, str | Path):  # these two take a folder, too
        views += [collectives, diagnose]
    for view in views:
        with pytest.raises(BadArgument, match="A run is what launch returns"):
            view(no_run)
    with pytest.raises(BadArgument):
        explore("train_ddp", no_run)


def test_a_question_stays_text() -> None:
    guess = predict(EVIL, choices=[EVIL])
    assert "<script" not in guess._repr_html_()
    assert "<script" not in guess.commit(EVIL).reveal(EVIL, EVIL)._repr_html_()


# Sliders


def test_explore_without_a_notebook_launches_the_first_position() -> None:
    seen = explore("hello_ranks", bars("total"), ranks=[2, 1], steps=2, pause_ms=1.0)
    assert seen.run is not None
    assert seen.run.ranks == 2
    assert seen.figure.values == {0: 3, 1: 3}
    bundle = seen._repr_mimebundle_()
    assert "<svg" in bundle["text/html"]
    assert "ranks: 2, 1" in plain(bundle["text/html"])
    assert "total of each rank" in bundle["text/plain"]
    assert seen.choose(ranks=1).figure.values == {0: 1}
    with pytest.raises(BadArgument, match="ranks=3"):
        seen.choose(ranks=3)


def test_explore_refuses_what_launch_refuses() -> None:
    with pytest.raises(BadArgument, match="stpes"):
        explore("hello_ranks", bars("total"), ranks=1, stpes=2)
    with pytest.raises(BadArgument, match="no values"):
        explore("hello_ranks", bars("total"), ranks=[])


def test_explore_shows_a_view_that_finds_nothing() -> None:
    seen = explore("hello_ranks", bars("missing"), ranks=1, steps=1)
    assert seen.figure is None
    assert "logged a number named 'missing'" in str(seen)
    assert "hello_ranks" in plain(seen._repr_mimebundle_()["text/html"])


@pytest.mark.usefixtures("in_background")
def test_a_slider_launches_again_and_the_latest_wish_wins() -> None:
    seen = explore("hello_ranks", bars("total"), ranks=[1, 2, 3], steps=2, pause_ms=1.0)
    launched: list[int] = []
    launch_it = seen._launch
    seen._launch = lambda p: launched.append(p["ranks"]) or launch_it(p)  # type: ignore
    seen.wait()
    assert seen.figure.values == {0: 1}
    for ranks in (2, 3, 2, 1, 3):
        seen.choose(ranks=ranks)
    seen.wait()
    assert seen.run is not None
    assert seen.run.ranks == 3
    assert seen.figure.values == {0: 6, 1: 6, 2: 6}
    assert launched[-1] == 3
    live: Any = seen._live
    assert "measured now: ranks 3" in live._status.value
    assert "<svg" in live._figure.value
    assert "ddpc-old" not in live._figure._dom_classes


@pytest.mark.usefixtures("in_background")
def test_a_broken_view_is_told_and_the_slider_goes_on() -> None:
    def broken(run: Any) -> Any:
        if run.ranks == 1:
            raise ZeroDivisionError("nothing to divide")
        return "fine"

    seen = explore("hello_ranks", broken, ranks=[1, 2], steps=1).wait()
    assert seen.problem == "ZeroDivisionError: nothing to divide"
    assert seen.choose(ranks=2).wait().figure == "fine"


@pytest.mark.usefixtures("in_background")
def test_explore_shows_no_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(session, "listeners", [lambda run: shown.append(panel.show(run)._hidden)])
    explore("hello_ranks", bars("total"), ranks=1, steps=1).wait()
    launch("hello_ranks", ranks=1, steps=1).wait()
    assert shown == [True, False]
