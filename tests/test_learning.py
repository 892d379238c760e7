"""What surrounds a check: hints, progress, stubs, the shell's commands, and what is shown live."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launching import caller, family, script, until
from test_exercises import BEGIN, END

import ddp_course
from ddp_course.__main__ import main
from ddp_course.checks import files, hint, hints, judge, live, progress, record, restore
from ddp_course.checks.exercises import EXERCISES, ROOT, find
from ddp_course.checks.supervisor import Observation
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.commands import learning
from ddp_course.errors import BadArgument, CourseError
from ddp_course.launcher.session import session


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's own copy of the exercises, with nothing done yet."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for path in (ROOT / "exercises").glob("*.py"):
        (folder / path.name).write_text(path.read_text())
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(folder))
    monkeypatch.setenv("DDP_COURSE_RUNS", str(tmp_path / "runs"))
    return folder


def write(place: Path, exercise: str, lines: str) -> Path:
    """An answer: `lines` in place of the TODO."""
    path = place / f"{EXERCISES[exercise].stem}.py"
    head, rest = path.read_text().split(BEGIN)
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    path.write_text(head + BEGIN + body + END + rest.split(END)[1])
    return path


def verdict(
    exercise: str = "ex02", status: str = "fail", mistake: str = "", file: str = ""
) -> Verdict:
    one = EXERCISES[exercise]
    results = tuple(
        Result(check.id, check.title, status, check.points, mistake=mistake) for check in one.checks
    )
    return Verdict(exercise, one.title, results, file=file)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ex03b", "ex03b_stop_together", "exercises/ex03b_stop_together.py"]
)
def test_an_exercise_is_found_by_name_stem_and_file(name: str) -> None:
    assert find(name).name == "ex03b"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ex2", "ex02"), ("2", "ex02"), ("3b", "ex03b"), ("EX03B", "ex03b"), ("ex3c", "ex03c"),
        ("average", "ex02"), ("ex02_averag_gradients", "ex02"), ("ex002", "ex02"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_told_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(BadArgument, match=f"Did you mean {nearest}\\?") as raised:
        find(name)
    assert "choose one of ex00, ex01" in str(raised.value)


@pytest.mark.parametrize("name", ["", "zzz", "ex99", None, 7, "../../etc/passwd", "é" * 1000, "\0"])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(BadArgument, match="There is no exercise"):
        find(name)


# ---- stubs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_stub_that_restore_writes_is_the_one_that_was_given(exercise: str) -> None:
    one = EXERCISES[exercise]
    assert files.stub_text(one) == (ROOT / "exercises" / f"{one.stem}.py").read_text()


def test_restore_keeps_what_was_there_and_says_where(place: Path) -> None:
    path = write(place, "ex02", "return None  # mine")
    mine = path.read_bytes()
    done = restore("ex02")
    assert path.read_text() == files.stub_text(EXERCISES["ex02"])
    assert Path(done.backup).read_bytes() == mine
    assert done.backup in str(done) and str(path) in str(done)
    again = restore("ex02")
    assert not again.changed and "nothing to do" in str(again)
    backups = set()
    for number in range(3):  # within one second
        path.write_text(f"# {number}\n")
        backups.add(restore("ex02").backup)
    assert sorted(Path(one).read_text() for one in backups) == ["# 0\n", "# 1\n", "# 2\n"]


def test_restore_brings_back_what_is_not_there_or_cannot_be_decoded(place: Path) -> None:
    path = place / "ex02_average_gradients.py"
    path.unlink()
    assert restore("ex02").backup == ""
    path.write_bytes(b"\xff\0")
    assert Path(restore("ex02").backup).read_bytes() == b"\xff\0"
    assert path.read_text() == files.stub_text(EXERCISES["ex02"])
    path.unlink()
    path.mkdir()
    with pytest.raises(CourseError, match="is a folder"):
        restore("ex02")


def test_restore_follows_a_link_and_leaves_the_solutions_alone(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "elsewhere.py"
    real.write_text("# mine\n")
    path = place / "ex02_average_gradients.py"
    path.unlink()
    path.symlink_to(real)
    restore("ex02")
    assert path.is_symlink() and real.read_text() == files.stub_text(EXERCISES["ex02"])
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    with pytest.raises(BadArgument, match="not yours to restore"):
        restore("ex02")


def test_a_solution_that_is_damaged_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, "ex02", "return None")
    monkeypatch.setattr(files, "ROOT", place)
    with pytest.raises(CourseError, match="git checkout"):
        restore("ex02")
    (place / "solutions").mkdir()
    (place / "solutions" / "ex02_average_gradients.py").write_text("# no marks\n")
    with pytest.raises(CourseError, match="lost its marks"):
        restore("ex02")


# ---- progress ------------------------------------------------------------------------------------


def test_progress_is_kept_by_exercise(place: Path) -> None:
    number = len(EXERCISES)
    assert f"0 of {number} exercises passed" in str(progress())
    path = place / "ex02_average_gradients.py"
    assert record.note(verdict(status="pass", file=str(path))) == ""
    assert record.note(verdict("ex00", mistake="nothing returned")) == ""
    now = progress()
    assert now.of("ex02").passed and now.of("ex02").best == 4
    assert (now.of("ex00").kind, now.of("ex00").checks) == ("nothing returned", 1)
    points = sum(one.max_points for one in EXERCISES.values())
    assert f"1 of {number} exercises passed, 4 of {points} points" in str(now)
    for text in (str(now), now._repr_html_()):
        assert "✓ passed" in text and "✗ not passed" in text and "○ not yet" in text
    path.write_text("# changed\n")
    assert "✓ passed, changed since" in str(progress())
    record.note(verdict(status="fail", file=str(path)))
    assert "passed before; now not passed" in str(progress())
    assert progress().of("ex02").best == 4, "the best is kept"


def test_the_courses_own_solutions_are_nobodys_progress(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    record.note(verdict(status="pass"))
    assert progress().entries == {}


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"version": 2, "exercises": {}}',
        b'{"version": 1}', b'{"version": 1, "exercises": []}', b"[" * 100_000,
        b'{"version": 1, "exercises": {"ex02": 3}}',
        b'{"version": 1, "exercises": {"ex02": {"best": -1}}}',
        b'{"version": 1, "exercises": {"ex02": {"best": 1e400}}}',
        b'{"version": 1, "exercises": {"ex02": {"best": true}}}',
        b'{"version": 1, "exercises": {"ex02": {"status": "splendid"}}}',
        b'{"version": 1, "exercises": {"ex02": {"surprise": 1}}}',
    ],
)  # fmt: skip
def test_a_damaged_record_is_kept_aside_and_said(text: bytes, place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "progress.json").write_bytes(text)
    problem = record.note(verdict(status="pass"))
    (kept,) = folder.glob("progress-damaged-*.json")
    assert kept.read_bytes() == text and str(kept) in problem
    assert progress().of("ex02").best == 4, "a new one has begun"


def test_a_record_that_cannot_be_written_is_said(place: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    assert "could not be recorded" in record.note(verdict())
    assert progress().entries == {}


def test_two_writers_lose_nothing(place: Path) -> None:
    code = """
import sys
from ddp_course.checks import record
from ddp_course.checks.verdict import Result, Verdict
results = (Result("a", "a", "fail", 1),)
for _ in range(30):
    assert record.note(Verdict(sys.argv[1], "t", results)) == ""
"""
    command = [sys.executable, "-c", code]
    writers = [subprocess.Popen([*command, name], cwd=ROOT) for name in ("ex00", "ex01")]
    assert [one.wait(120) for one in writers] == [0, 0]
    assert [progress().of(name).checks for name in ("ex00", "ex01")] == [30, 30]


# ---- hints ---------------------------------------------------------------------------------------


def headings(given: hints.Hint) -> list[str]:
    return [heading for heading, _ in given.parts]


def test_hints_come_one_at_a_time_and_begin_with_the_mistake(place: Path) -> None:
    record.note(verdict(mistake="sum instead of mean"))
    one = EXERCISES["ex02"]
    first = hint("ex02")
    assert headings(first) == ["What happened"]
    known = next(m for m in one.mistakes if m.name == "sum instead of mean")
    assert known.hint in str(first) and known.name in first._repr_html_()
    assert headings(hint("ex02")) == ["What happened"], "asking again is no step"
    for number in (2, 3, 4, 4):  # the solution does not come by itself
        assert headings(hint("ex02", more=True)) == list(hints.TITLES[:number])
    assert one.tiers.skeleton in str(hint("ex02"))
    assert "solution=True" in str(hint("ex02"))


def test_another_mistake_begins_at_its_own_hint(place: Path) -> None:
    record.note(verdict(mistake="sum instead of mean"))
    assert len(hint("ex02", more=True).parts) == 2, "the verdict was the first step"
    hint("ex02", more=True)
    record.note(verdict(mistake="sum instead of mean"))
    assert len(hint("ex02").parts) == 3, "the same mistake goes on where it was"
    record.note(verdict(mistake="divided twice"))
    assert headings(hint("ex02")) == ["What happened"]
    assert "divided twice" in str(hint("ex02"))


def test_before_any_check_hints_begin_with_the_question(place: Path) -> None:
    assert headings(hint("ex02")) == ["A question"]
    for number in (3, 4, 4):
        assert headings(hint("ex02", more=True)) == list(hints.TITLES[1:number])


def test_the_solution_comes_on_request_and_after_passing(place: Path) -> None:
    asked = hint("ex02", solution=True)
    assert headings(asked)[-1] == "The solution"
    assert "dist.all_reduce(parameter.grad)" in str(asked)
    assert headings(hint("ex02"))[-1] == "A skeleton", "it is not shown again unasked"
    record.note(verdict("ex00", status="pass"))
    assert headings(hint("ex00"))[-1] == "The solution"


@pytest.mark.parametrize("exercise", EXERCISES)
def test_every_kind_of_mistake_has_its_hints(exercise: str, place: Path) -> None:
    one = EXERCISES[exercise]
    for mistake in one.mistakes:
        record.note(verdict(exercise, mistake=mistake.name))
        assert mistake.hint in str(hint(exercise))
        question = mistake.question or one.tiers.question
        assert question.endswith("?") and question in str(hint(exercise, more=True))
    record.note(verdict(exercise, status="timeout", mistake="not every rank makes the same calls"))
    assert one.hang_hint in str(hint(exercise))
    assert all([one.tiers.question, one.tiers.api, one.tiers.skeleton, files.answer_lines(one)])


# ---- the shell -----------------------------------------------------------------------------------


def test_check_as_json_is_one_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, "ex00", "return number")
    assert main(["check", "ex00", "ex02", "ex00", "--json"]) == 1
    said = capsys.readouterr()
    whole = json.loads(said.out)
    assert said.err == ""
    assert {"version": 1, "passed": False, "points": 0, "max_points": 7}.items() <= whole.items()
    first, second = whole["exercises"]
    assert [first["exercise"], second["exercise"]] == ["ex00", "ex02"]
    assert [first["status"], second["status"]] == ["fail", "ungradable"]
    (failed, _) = first["results"]
    assert failed["mistake"] == "own number returned" and failed["hint"]
    assert failed["table"]["head"][0] == "rank" and len(failed["table"]["rows"]) == 3
    assert Path(first["run"]).is_dir() and second["run"] == ""


def test_without_a_name_all_are_checked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 1  # stubs: nothing runs
    said = capsys.readouterr().out
    for one in EXERCISES.values():
        assert f"○ {one.name} {one.title}: not yet, 0 of {one.max_points} points" in said


@pytest.mark.parametrize(
    "words",
    [["check", "ex00", "ex99"], ["hint", "ex99"], ["restore", "ex99"], ["diff", "ex99"],
     ["watch", "ex99"], ["check", "--json", "ex99"]],
)  # fmt: skip
def test_a_wrong_name_is_exit_2_before_anything_runs(
    words: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and "There is no exercise 'ex99'" in said.err
    assert not (place.parent / "runs").exists()


def test_hint_restore_diff_and_progress_in_a_shell(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, "ex00", "return number")
    assert main(["diff", "ex00"]) == 0
    said = capsys.readouterr().out
    assert "+    return number\n" in said and "the solution" not in said.split("Once it")[0]
    assert main(["hint", "ex00", "--more"]) == 0
    assert "python -m ddp_course hint ex00 --more" in capsys.readouterr().out
    assert main(["hint", "ex00", "--solution"]) == 0
    assert "dist.all_reduce(total)" in capsys.readouterr().out
    record.note(verdict("ex00", status="pass"))
    assert main(["diff", "ex00"]) == 0
    assert "--- the solution\n" in capsys.readouterr().out
    assert main(["restore", "ex00"]) == 0
    assert "is kept in" in capsys.readouterr().out
    assert main(["diff", "ex00"]) == 0
    assert "is as it was given" in capsys.readouterr().out
    for command in ("list", "progress"):
        assert main([command]) == 0
        said = capsys.readouterr().out
        for one in EXERCISES.values():
            for word in (one.name, one.title, one.lesson, one.difficulty, str(one.minutes)):
                assert word in said


def test_a_change_counts_when_it_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor is played between two looks: in pieces, by another file, and by a touch."""
    path = tmp_path / "a.py"
    path.write_text("one")
    moves: Iterator[Any] = iter(
        [
            lambda: path.write_text("tw"),
            lambda: path.write_text("two"),
            lambda: None,  # → two
            lambda: os.utime(path, (1, 1)),
            lambda: path.unlink(),
            lambda: None,
            lambda: (tmp_path / "b").write_text("three"),
            lambda: (tmp_path / "b").replace(path),
            lambda: None,  # → three
            lambda: path.unlink(),
            lambda: path.mkdir(),
            lambda: (path.rmdir(), path.write_text("three")),
            lambda: None,
        ]
    )
    seen = []

    def look(_: float) -> None:
        move = next(moves, None)
        if move is None:
            raise KeyboardInterrupt
        move()

    monkeypatch.setattr(learning.time, "sleep", look)
    with pytest.raises(KeyboardInterrupt):
        for changed in learning.changes([path]):
            seen.append(changed.read_text())
    assert seen == ["two", "three"]


def test_watch_checks_again_on_save_and_ends_by_an_interrupt(place: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-u", "-m", "ddp_course", "watch", "ex00"],
        cwd=ROOT,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    said: list[str] = []
    assert watching.stdout is not None
    reader = threading.Thread(target=lambda: said.extend(watching.stdout or ()), daemon=True)
    reader.start()
    try:
        until(lambda: any("Watching ex00" in line for line in said), "the first verdict", 120)
        assert any("not yet" in line for line in said)
        write(place, "ex00", "return number")
        until(lambda: any("own number returned" in line for line in said), "the second one", 120)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        below = family(watching.pid)
        watching.kill()
        watching.wait()
        reader.join(10)
        watching.stdout.close()
        until(lambda: not any(one.is_running() for one in below), "what it started to end")


def test_an_interrupted_check_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    stem = EXERCISES["ex00"].stem
    inside = tmp_path / "inside"
    script(
        mine,
        f"""
        import time
        from pathlib import Path
        def sum_over_ranks(number):
            Path({str(inside)!r}).touch()
            time.sleep(600)
        """,
        f"{stem}.py",
    )
    text = f"""
        import psutil
        from ddp_course import check
        try:
            check("ex00")
            print("came back")
        except KeyboardInterrupt:
            print("interrupted")
        def ranks():
            found = psutil.Process().children(recursive=True)
            return [one for one in found if "driver.py" in " ".join(one.cmdline())]
        import os, time
        deadline = time.monotonic() + 60
        while ranks() and time.monotonic() < deadline:
            time.sleep(0.1)
        print("left:", len(ranks()))
        os.environ["DDP_COURSE_EXERCISES"] = {str(ROOT / "solutions")!r}
        print("then:", check("ex00").status)
    """
    env = {
        "DDP_COURSE_EXERCISES": str(mine),
        "DDP_COURSE_RUNS": str(tmp_path / "runs"),
        "PYTHONPATH": str(ROOT),
    }
    log = tmp_path / "caller.log"
    with caller(tmp_path, text, env) as process:
        until(inside.exists, "a rank in the function", 120)
        process.send_signal(signal.SIGINT)
        process.wait(120)
    said = log.read_text()
    assert "interrupted" in said and "left: 0" in said and "then: pass" in said, said


# ---- live ----------------------------------------------------------------------------------------


def seen(*states: str) -> list[Observation]:
    return [Observation(rank, state) for rank, state in enumerate(states)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with live.shown("ex00") as tell:
        assert tell is not None
        tell(seen("importing", "absent"))
        tell(seen("importing", "absent"))
        waiting = seen("returned", "computing")
        waiting[1].still, waiting[1].line = 5, "line 7: x"
        tell(waiting)
    said = terminal.getvalue()
    assert said.count("importing your file") == 1 and "\n" not in said
    assert "rank 0 ✓ returned  rank 1 ‖ waiting in line 7: x" in said
    assert said.endswith("\r\x1b[K"), "and goes when the verdict comes"


def test_into_a_file_little_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_SELDOM_S", 1e6)
    with live.shown("ex00") as tell:
        assert tell is not None
        for state in ("absent", "importing", "computing", "returned"):
            tell(seen(state, state))
    assert capsys.readouterr().err == "", "a check that is quick says nothing"


@pytest.mark.parametrize("broken", [None, "closed"])
def test_without_a_standard_error_a_check_goes_on(
    broken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = None
    if broken:
        stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with live.shown("ex00") as tell:
        if stream:
            stream.close()
        assert tell is not None
        tell(seen("returned"))


def test_only_a_kernel_without_a_reader_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", type(sys)("ipykernel"))  # as widgets do
    with live.shown("ex00") as tell:
        assert tell is not None, "to have imported ipykernel is not to be one"
    monkeypatch.setattr(session, "in_kernel", True)
    with live.shown("ex00") as tell:
        assert tell is None


def test_in_a_notebook_a_table_lives_until_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures: list[dict[str, str]] = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            pictures.append(bundle)

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Handle:
        pictures.append(bundle)
        return Handle()

    module = type(sys)("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(session, "in_background", True)
    monkeypatch.setattr(live, "_PERIOD_S", 0.0)
    with contextlib.suppress(KeyboardInterrupt), live.shown("ex00") as tell:
        assert tell is not None
        tell(seen("importing", "computing", "raised"))
        raise KeyboardInterrupt
    first, middle, last = pictures
    assert "checking ex00" in first["text/plain"]
    for word in ("importing your file", "● computing", "✗ raised an error", "rank&nbsp;2"):
        assert word in middle["text/html"]
    assert last == {"text/html": "", "text/plain": ""}


def test_every_state_has_words() -> None:
    for state in ("absent", "here", "importing", "loading", "computing", "returned", "raised"):
        assert live.act(Observation(0, state))
    assert live.act(Observation(0, "malformed")) and live.act(Observation(0, "gone"))


# ---- the verdict ---------------------------------------------------------------------------------


def test_the_first_that_failed_is_open_and_the_rest_is_folded() -> None:
    results = (
        Result("a", "first", "pass", 1, why="w"),
        Result("b", "second", "fail", 1, message="m", why="w"),
        Result("c", "third", "blocked", 1, why="w"),
    )
    html = Verdict("ex00", "title", results)._repr_html_()
    assert html.count("<details open>") == 1 and html.count("<details>") == 2
    assert html.index("<details open>") < html.index("second")


def test_the_notebooks_names_are_public_and_cost_nothing() -> None:
    for name in ("check", "hint", "restore", "progress"):
        assert name in ddp_course.__all__
    code = (
        "import sys, ddp_course\n"
        "ddp_course.hint, ddp_course.restore, ddp_course.progress, ddp_course.check\n"
        "assert callable(ddp_course.progress) and 'torch' not in sys.modules\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_what_a_verdict_says_of_progress_is_part_of_its_note(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "note", lambda verdict: "Your progress is lost.")
    monkeypatch.setattr(judge, "judge", lambda name, tell: replace(verdict(), note="n"))
    assert str(judge.check("ex02", quiet=True)).endswith(
        'n\nStuck? hint("ex02", more=True)\nYour progress is lost.'
    )


def test_old_checks_do_not_push_out_the_lessons_runs(place: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    names = [f"202601{day:02}-120000-driver-00{day:02x}" for day in range(1, 26)]
    for name in [*names, "20260101-110000-hello_ranks-abcd"]:
        (root / name).mkdir(parents=True)
        os.utime(root / name, (1e9, 1e9))
    (root / names[0]).touch()  # it may be about to begin
    judge.tidy(root)
    left = {path.name for path in root.iterdir()}
    assert left == {names[0], *names[-judge.KEEP_CHECKS :], "20260101-110000-hello_ranks-abcd"}
    judge.tidy(tmp_path / "nowhere")
