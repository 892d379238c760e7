"""Grading a class: everyone once, nothing twice, nothing lost, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from conftest import needs
from gradebook import edit
from launching import family, until

from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.manifest import Exercise
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.errors import BadArgument, CannotRun, NoEvidence
from ddp_grading import batch, box, commands, results, roster, sandbox, submissions
from ddp_grading.batch import Options, grade

ROOT = Path(__file__).resolve().parent.parent
STEM = EXERCISES["ex00"].stem
RIGHT = (ROOT / "solutions" / f"{STEM}.py").read_text()
SOME = Options(exercises=("ex00", "ex02"))


def answer(words: str, function: str = EXERCISES["ex00"].function) -> str:
    """A file that defines what its exercise asks for; the words say what its verdict is to be."""
    return f"def {function}(*given):\n    return given\n\n\n# {words}\n"


def a_class(folder: Path, **answers: str | None) -> list[roster.Student]:
    """Students with these answers to ex00: a file's text, or a word for `answer`; None: nothing."""
    for name, text in answers.items():
        if text is not None:
            (folder / name).mkdir(parents=True)
            whole = text if "\n" in text else answer(text)
            (folder / name / f"{STEM}.py").write_text(whole)
    return [roster.Student(id=name) for name in answers]


class Desk:
    """Stands in for a desk with sandboxes: the answer's text says what its verdict is."""

    judged: ClassVar[list[tuple[str, str]]]  # the answer and the exercise
    ranks: ClassVar[dict[str, int]] = {}  # how many it was judged with, by exercise

    def __init__(self, image: Path, folder: Path, **_: object) -> None:
        self.folder = folder

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def abandon(self) -> None:
        pass

    close = abandon

    def judge(self, exercise: Exercise, file: str, *, ranks: int | None = None) -> Verdict:
        Desk.ranks[exercise.name] = ranks or exercise.ranks
        text = (self.folder / file).read_text().rpartition("# ")[2].strip()
        Desk.judged.append((text, exercise.name))
        time.sleep(random.random() / 100)
        if text == "breaks the judge":
            raise RecursionError("a bug of ours")
        status = text.split()[0] if text.split() else "error"
        return Verdict(
            exercise.name,
            exercise.title,
            tuple(
                Result(one.id, one.title, status if not i else "pass", one.points)
                for i, one in enumerate(exercise.checks)
            ),
        )


@pytest.fixture
def desks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """What was judged, in order; no sandbox is started."""
    Desk.judged = []
    monkeypatch.setattr(box, "Desk", Desk)
    monkeypatch.setattr(box, "probe", lambda image, held=None: "")
    monkeypatch.setattr(sandbox, "version", lambda: "bubblewrap 0")
    monkeypatch.setattr(sandbox, "limits", lambda image: {"pids": "cgroup v2"})
    yield Desk.judged


def scores(out: Path) -> dict[tuple[str, str], tuple[str, float]]:
    records = results.read_all(out).records
    return {key: (one.status, one.score) for key, one in records.items()}


def test_everyone_has_every_exercise_once(tmp_path: Path, desks: list[Any]) -> None:
    students = a_class(tmp_path / "in", ada="pass", bob="fail", eve=None, zoe="error")
    said: list[str] = []
    outcome = grade(tmp_path / "in", students, tmp_path / "out", SOME, say=said.append)
    assert scores(tmp_path / "out") == {
        ("ada", "ex00"): ("pass", 3.0),
        ("ada", "ex02"): ("ungradable", 0.0),
        ("bob", "ex00"): ("fail", 1.0),
        ("bob", "ex02"): ("ungradable", 0.0),
        ("eve", "ex00"): ("ungradable", 0.0),
        ("eve", "ex02"): ("ungradable", 0.0),
        ("zoe", "ex00"): ("error", 1.0),
        ("zoe", "ex02"): ("ungradable", 0.0),
    }
    assert (outcome.graded, outcome.skipped, outcome.exit_code) == (8, 0, 1)
    assert [line.split()[0] for line in said] == ["1/4", "2/4", "3/4", "4/4"]
    assert "left)" in said[0] and "left)" not in said[3]
    record = results.read(tmp_path / "out", "bob", "ex00")
    assert record is not None
    assert record.sandbox == "bubblewrap 0; processes limited by cgroup v2, memory only watched"
    record = results.read(tmp_path / "out", "eve", "ex00")
    assert record is not None and "No answer was handed in" in record.checks[0].message


def test_what_is_graded_is_not_graded_again_until_it_changes(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    students = a_class(tmp_path / "in", ada="pass", bob="fail")
    out = tmp_path / "out"
    grade(tmp_path / "in", students, out, SOME)
    desks.clear()
    outcome = grade(tmp_path / "in", students, out, SOME)
    assert (desks, outcome.graded, outcome.skipped) == ([], 0, 4)
    (tmp_path / "in" / "bob" / f"{STEM}.py").write_text(answer("pass now"))
    assert grade(tmp_path / "in", students, out, SOME).graded == 1
    assert desks == [("pass now", "ex00")]
    record = results.read(out, "bob", "ex00")
    assert record is not None and (record.status, record.attempt) == ("pass", 2)
    desks.clear()
    monkeypatch.setattr(batch, "__version__", "99.0")
    assert grade(tmp_path / "in", students, out, SOME).graded == 4, "another version judges anew"


def test_a_job_is_tried_in_a_sandbox_before_the_first_is_judged_and_only_then(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes, problem = [], "no loopback"
    monkeypatch.setattr(box, "probe", lambda image, held: probes.append(image) or problem)
    folder, out = tmp_path / "in", tmp_path / "out"
    students = a_class(folder, ada=None, bob=None)
    folder.mkdir()
    grade(folder, students, out, SOME)
    assert not probes, "there was nothing to judge"
    a_class(folder, ada="pass", eve="fail")
    students.append(roster.Student(id="eve"))
    with pytest.raises(sandbox.NoSandbox, match="no loopback"):
        grade(folder, students, out, SOME)
    assert not desks
    probes.clear()
    problem = ""
    more = replace(SOME, jobs=3)
    grade(folder, students, out, more)
    assert sorted(desks) == [("fail", "ex00"), ("pass", "ex00")]
    assert grade(folder, students, out, more).graded == 0
    assert len(probes) == 1


def test_regrading_takes_what_is_asked_for(tmp_path: Path, desks: list[Any]) -> None:
    students = a_class(tmp_path / "in", ada="pass", bob="fail", eve="fail")
    out = tmp_path / "out"
    grade(tmp_path / "in", students, out, SOME)
    desks.clear()
    chosen = Options(exercises=("ex00",), students=("bob",), again=True)
    assert grade(tmp_path / "in", students, out, chosen).graded == 1
    assert desks == [("fail", "ex00")]
    record = results.read(out, "bob", "ex00")
    assert record is not None and record.attempt == 1, "the same file is the same attempt"
    with pytest.raises(BadArgument, match="no student 'nobody'"):
        grade(tmp_path / "in", students, out, Options(students=("nobody",)))
    with pytest.raises(BadArgument, match="-j cannot be 0"):
        grade(tmp_path / "in", students, out, Options(jobs=0))


def test_a_record_of_another_manifest_is_graded_anew(tmp_path: Path, desks: list[Any]) -> None:
    students = a_class(tmp_path / "in", ada="fail", bob="fail", eve="fail")
    out = tmp_path / "out"
    grade(tmp_path / "in", students, out, Options(exercises=("ex00",)))
    before = scores(out)
    edit(out, "ada", "ex00", "checks", lambda text: text[:40])
    edit(
        out,
        "bob",
        "ex00",
        "checks",
        lambda text: text.replace('"max_points": 1', '"max_points": 3'),
    )
    desks.clear()
    grade(tmp_path / "in", students, out, Options(exercises=("ex00",)))
    assert len(desks) == 2 and scores(out) == before


def test_our_fault_is_never_a_score_and_is_tried_the_next_time(
    tmp_path: Path, desks: list[Any]
) -> None:
    students = a_class(tmp_path / "in", ada="infra", bob="pass")
    out = tmp_path / "out"
    one = Options(exercises=("ex00",))
    assert grade(tmp_path / "in", students, out, one).exit_code == 3
    desks.clear()
    grade(tmp_path / "in", students, out, one)
    assert desks == [("infra", "ex00")]


def test_all_passed_is_exit_0(tmp_path: Path, desks: list[Any]) -> None:
    students = a_class(tmp_path / "in", ada="pass")
    assert (
        grade(tmp_path / "in", students, tmp_path / "out", Options(exercises=("ex00",))).exit_code
        == 0
    )


def test_scores_do_not_depend_on_how_many_work(tmp_path: Path, desks: list[Any]) -> None:
    kinds = ["pass", "fail", "error", "timeout", None]
    answers = {f"s{n:02}": kinds[n % 5] for n in range(30)}
    students = a_class(tmp_path / "in", **answers)
    found = []
    for jobs in (1, 3, 8):
        out = tmp_path / f"out{jobs}"
        said: list[str] = []
        grade(
            tmp_path / "in", students, out, Options(jobs=jobs, exercises=("ex00",)), say=said.append
        )
        found.append(scores(out))
        assert len(said) == len({line.split()[1] for line in said}) == 30
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 30


def test_nobody_is_graded_twice_at_the_same_time(tmp_path: Path, desks: list[Any]) -> None:
    students = a_class(tmp_path / "in", ada="pass")
    message = "Another grader is at work"
    with batch._alone_in(tmp_path / "out"), pytest.raises(CannotRun, match=message):
        grade(tmp_path / "in", students, tmp_path / "out", SOME)
    grade(tmp_path / "in", students, tmp_path / "out", SOME)


def test_a_full_disk_stops_the_batch_and_says_how_to_go_on(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    really = results.write

    def write(out: Path, record: results.Record, **more: Any) -> results.Record:
        if record.student == "bob":
            raise OSError(28, "No space left on device")
        return really(out, record, **more)

    monkeypatch.setattr(results, "write", write)
    students = a_class(tmp_path / "in", ada="pass", bob="pass", eve="pass")
    with pytest.raises(CannotRun, match="give the same command again"):
        grade(tmp_path / "in", students, tmp_path / "out", Options(exercises=("ex00",)))
    assert scores(tmp_path / "out") == {("ada", "ex00"): ("pass", 3.0)}


def test_whatever_breaks_while_judging_is_that_students_result_and_the_next_is_graded(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    really = submissions.collect

    def collect(paths: list[Path], into: Path, **given: Any) -> submissions.Collected:
        if any(path.name == "bob" for path in paths):
            raise MemoryError("of the reader")
        return really(paths, into, **given)

    monkeypatch.setattr(submissions, "collect", collect)
    students = a_class(tmp_path / "in", ada="breaks the judge", bob="pass", eve="pass")
    outcome = grade(tmp_path / "in", students, tmp_path / "out", Options(exercises=("ex00",)))
    assert (outcome.statuses, outcome.exit_code) == ({"infra": 2, "pass": 1}, 3)
    for student, said in (("ada", "RecursionError: a bug of ours"), ("bob", "MemoryError: of the")):
        record = results.read(tmp_path / "out", student, "ex00")
        assert record is not None and said in record.checks[0].message


def test_what_a_killed_grader_left_is_removed_and_nothing_else(
    tmp_path: Path, desks: list[Any]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    left = Path(tempfile.mkdtemp(prefix=batch._PREFIX))
    (left / "s-x").mkdir()
    (out / ".lock").write_text(str(left))
    students = a_class(tmp_path / "in", ada="pass")
    grade(tmp_path / "in", students, out, SOME)
    assert not left.exists()
    precious = tmp_path / "precious"
    precious.mkdir()
    (out / ".lock").write_text(str(precious))
    grade(tmp_path / "in", students, out, SOME)
    assert precious.exists()


def test_entries_of_nobody_are_named_and_hostile_ones_stop_nothing(
    tmp_path: Path, desks: list[Any]
) -> None:
    students = a_class(tmp_path / "in", ada="pass", bob="pass")
    (tmp_path / "in" / "stranger").mkdir()
    (tmp_path / "in" / "bob.zip").write_bytes(b"PK\x03\x04 broken")
    outcome = grade(tmp_path / "in", students, tmp_path / "out", Options(exercises=("ex00",)))
    assert [path.name for path, _ in outcome.strangers] == ["stranger"]
    assert "no archive that can be read" in outcome.notes["bob"][0]
    assert outcome.statuses == {"pass": 2}


@pytest.mark.parametrize("unsafe", [False, True])
def test_an_answer_for_the_ranks_of_a_check_only_is_graded_with_others(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch, unsafe: bool
) -> None:
    """Otherwise "/ 3" would be a mean."""
    monkeypatch.setattr(
        batch,
        "_judge_unsafely",
        lambda exercise, path: Desk(path, path.parent).judge(exercise, path.name),
    )
    (tmp_path / "in" / "ada").mkdir(parents=True)
    for one in EXERCISES.values():
        (tmp_path / "in" / "ada" / f"{one.stem}.py").write_text(answer("pass", one.function))
    Desk.ranks = {}
    students = [roster.Student(id="ada")]
    grade(tmp_path / "in", students, tmp_path / "out", Options(unsafe=unsafe))
    assert list(Desk.ranks) == list(EXERCISES)
    same = [name for name, ranks in Desk.ranks.items() if ranks == EXERCISES[name].ranks]
    assert same == ["ex05"], "which has two stages, and no other number of ranks"


def test_a_sandboxed_result_is_not_taken_for_an_unsafe_one(
    tmp_path: Path, desks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    students = a_class(tmp_path / "in", ada="pass")
    out = tmp_path / "out"
    monkeypatch.setattr(
        batch,
        "_judge_unsafely",
        lambda exercise, path: Desk(path, path.parent).judge(exercise, path.name),
    )
    one = Options(exercises=("ex00",))
    unsafe = Options(exercises=("ex00",), unsafe=True)
    grade(tmp_path / "in", students, out, unsafe)
    record = results.read(out, "ada", "ex00")
    assert record is not None and record.sandbox == "none (unsafe)"
    assert grade(tmp_path / "in", students, out, one).graded == 1
    assert grade(tmp_path / "in", students, out, one).graded == 0


def command(folder: Path, *more: str, name: str = "grade") -> list[str]:
    words = [sys.executable, "-m", "ddp_grading", name, str(folder / "in")]
    return [*words, "--roster", str(folder / "r.csv"), "--out", str(folder / "out"), *more]


def test_no_sandbox_is_exit_4_unless_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_class(tmp_path / "in", ada="pass")
    (tmp_path / "r.csv").write_text("id\nada\n")
    ran = subprocess.run(
        command(tmp_path),
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == commands.NO_SANDBOX, ran.stderr
    assert "apt-get install bubblewrap" in ran.stderr and "--unsafe-no-sandbox" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_without_a_sandbox_every_row_says_so(tmp_path: Path) -> None:
    a_class(tmp_path / "in", ada=RIGHT, bob=None)
    (tmp_path / "r.csv").write_text("id\nada\nbob\n")
    ran = subprocess.run(
        command(tmp_path, "--exercise", "ex00", "--unsafe-no-sandbox"),
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 1, ran.stderr
    records = results.read_all(tmp_path / "out").records
    assert {one.sandbox for one in records.values()} == {"none (unsafe)"}
    assert records["ada", "ex00"].score == 3.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--exercise", "ex99"], "no exercise 'ex99'"),
        (["-j", "0"], "-j cannot be 0"),
        (["--student", "nobody"], "no student 'nobody'"),
        (["--late", "nonsense"], "not a rule for late work"),
    ],
)
def test_a_wrong_request_is_exit_2(
    tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from ddp_grading.__main__ import main

    a_class(tmp_path / "in", ada="pass")
    (tmp_path / "r.csv").write_text("id\nada\n")
    assert main(command(tmp_path, *more)[3:]) == 2
    assert said in capsys.readouterr().err


HOSTILE = "import os\n\n\ndef sum_over_ranks(number):\n    os._exit(0)\n"
STUB = (ROOT / "exercises" / f"{STEM}.py").read_text()
CLASS = {"ada": RIGHT, "bob": "def sum_over_ranks(n):\n    return n\n", "eve": HOSTILE, "zed": STUB}
EXPECTED = {
    "ada": ("pass", 3.0),
    "bob": ("fail", 0.0),
    "eve": ("error", 0.0),
    "zed": ("ungradable", 0.0),
}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A class of four, for real sandboxes; TMPDIR is its own, to see what is left in it."""
    a_class(tmp_path / "in", **CLASS)
    (tmp_path / "r.csv").write_text("id\n" + "\n".join(CLASS))
    return tmp_path


@pytest.fixture
def temp() -> Iterator[str]:
    """A long one: the address of a Unix socket would not hold the path of a file in it."""
    folder = tempfile.mkdtemp(prefix="t-")
    (long := Path(folder) / ("x" * 80)).mkdir()
    yield str(long)
    shutil.rmtree(folder, ignore_errors=True)


def begin(folder: Path, temp: str, *more: str) -> subprocess.Popen[str]:
    def hear_signals() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.Popen(
        command(folder, "--exercise", "ex00", *more),
        env={**os.environ, "TMPDIR": temp},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        preexec_fn=hear_signals,
    )


def records_there(folder: Path) -> dict[tuple[str, str], results.Record]:
    with contextlib.suppress(NoEvidence):
        return dict(results.read_all(folder / "out").records)
    return {}


@needs("bwrap")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_batch_loses_nothing_and_goes_on(
    real: Path, temp: str, how: signal.Signals
) -> None:
    grader = begin(real, temp, "-j", "1")
    until(lambda: records_there(real) or grader.poll() is not None, "a first result", 300)
    kept = records_there(real)
    below = family(grader.pid)
    grader.send_signal(how)
    said, _ = grader.communicate(timeout=120)
    assert grader.returncode == (130 if how == signal.SIGINT else -9), said
    until(lambda: not any(one.is_running() for one in below), "the end of all its processes")
    if how == signal.SIGINT:
        assert os.listdir(temp) == [], "an interrupted grader tidies up"
        assert "the same command resumes" in said
    assert kept.items() <= records_there(real).items()
    second = begin(real, temp, "-j", "2")
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 1, said
    assert scores(real / "out") == {(name, "ex00"): one for name, one in EXPECTED.items()}
    assert re.search(r"\d graded in .*, [1-4] were graded before", said), said
    assert os.listdir(temp) == [], "what a killed grader left is removed by the next"
    ada = records_there(real)["ada", "ex00"]
    assert ada.sandbox.startswith("bubblewrap")
    assert len(ada.sha256) == 64


@needs("bwrap")
def test_two_graders_on_one_folder(real: Path, temp: str) -> None:
    first = begin(real, temp)
    until(
        lambda: (real / "out" / ".lock").exists() and (real / "out" / ".lock").read_text(), "lock"
    )
    second = begin(real, temp)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 3 and "Another grader is at work" in said
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    assert threading.active_count() < 50
