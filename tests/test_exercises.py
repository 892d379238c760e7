"""Stubs fail, solutions pass, and every known wrong answer gets its own name and hint."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpora import BEGIN, END, Entry, entries, filled

from ddp_course.checks import check
from ddp_course.checks import judge as judging
from ddp_course.checks.manifest import Check, PerRank
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.errors import BadArgument
from ddp_course.launcher.launch import launch
from ddp_course.run.run import Run

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = sorted(judging.EXERCISES)

# exercise, the learner's lines, the mistake's name
WRONG = [(one.exercise, one.lines, one.mistake) for one in entries("wrong")]
RIGHT = {
    one.exercise: one.lines for one in entries("accepted") if one.path.stem == "written_otherwise"
}
HANDED_OVER, SURVIVES = RIGHT["ex05"], RIGHT["ex06"]


def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exercise: str, lines: str) -> Verdict:
    """The verdict on a stub with `lines` in place of its TODO."""
    path = tmp_path / f"{judging.EXERCISES[exercise].stem}.py"
    path.write_text(filled(exercise, lines))
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    return check(exercise)


def outside(text: str) -> tuple[str, str]:
    head, rest = text.split(BEGIN)
    return head, rest.split(END)[1]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_stub_and_solution_are_mirrored(exercise: str) -> None:
    stem = judging.EXERCISES[exercise].stem
    stub = (ROOT / "exercises" / f"{stem}.py").read_text()
    solution = (ROOT / "solutions" / f"{stem}.py").read_text()
    assert outside(stub) == outside(solution)
    inside = solution.split(BEGIN)[1].split(END)[0]
    assert 0 < len(inside.splitlines()) <= (20 if exercise == "ex14" else 12)  # the capstone


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_file_says_what_its_manifest_says(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    words = ast.get_docstring(ast.parse((ROOT / "exercises" / f"{one.stem}.py").read_text()))
    assert words is not None
    assert words.startswith(f"Exercise {exercise.removeprefix('ex')}: ")
    assert f"Difficulty: {one.difficulty}, about {one.minutes} minutes." in words
    assert one.difficulty in ("easy", "medium", "hard")
    assert f'`check("{exercise}")` in lesson {one.lesson}' in words
    assert f"--nproc-per-node={one.ranks}" in words
    for wanted in ("Target:", "API:", f"exercises/{one.stem}.py"):
        assert wanted in words
    (lesson,) = (ROOT / "notebooks" / "src").glob(f"{one.lesson}_*.py")
    assert f'check("{exercise}")' in lesson.read_text()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_manifest_holds_together(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    ids = [check.id for check in one.checks]
    assert len(set(ids)) == len(ids)
    for number, check_ in enumerate(one.checks):
        assert check_.points > 0 and check_.tolerance > 0
        assert set(check_.depends) <= set(ids[:number]), "what it depends on comes before it"
    assert "…" in one.tiers.skeleton and one.tiers.question.endswith("?")
    assert (one.calls is None) is not one.talks


def test_every_file_has_a_check_and_every_check_its_files() -> None:
    stems = sorted(one.stem for one in judging.EXERCISES.values())
    assert sorted(path.stem for path in (ROOT / "exercises").glob("*.py")) == stems
    assert sorted(path.stem for path in (ROOT / "solutions").glob("*.py")) == stems


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_untouched_stub_is_not_yet(exercise: str) -> None:
    verdict = check(exercise)
    assert (verdict.status, verdict.points) == ("ungradable", 0)
    assert "not yet" in str(verdict) and "not yet" in verdict._repr_html_()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_passes(exercise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    verdict = check(exercise)
    assert verdict.passed, str(verdict)
    assert verdict.points == verdict.max_points
    assert json.loads((Path(verdict.folder) / "verdict.json").read_text())["status"] == "pass"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one != "ex05"])  # two halves
def test_the_solution_passes_on_other_numbers_of_ranks(
    exercise: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = judging.EXERCISES[exercise]
    assert one.ranks == 3
    monkeypatch.setitem(judging.EXERCISES, exercise, replace(one, ranks=ranks))
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    verdict = check(exercise)
    assert verdict.passed, str(verdict)
    assert f"--nproc-per-node={ranks}" in verdict.command


@pytest.mark.parametrize("entry", entries("accepted"), ids=lambda one: one.id)
def test_another_right_answer_passes(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{judging.EXERCISES[entry.exercise].stem}.py").write_text(entry.text)
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    verdict = check(entry.exercise)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_exercise_file_is_a_script(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    solved = launch(ROOT / "solutions" / f"{one.stem}.py", ranks=one.ranks, limit_s=200)
    assert solved.ok, str(solved)
    stub = launch(ROOT / "exercises" / f"{one.stem}.py", ranks=one.ranks, limit_s=200)
    assert not stub.ok
    assert "is yours to " in str(stub)


def test_the_command_that_a_verdict_shows_runs_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    ran = subprocess.run(
        shlex.split(check("ex00").command),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("total=[6.0]") == 3


@pytest.mark.parametrize(("exercise", "lines", "mistake"), WRONG, ids=[w[2] for w in WRONG])
def test_a_wrong_answer_is_named(
    exercise: str, lines: str, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    assert verdict.status == "fail", str(verdict)
    opened = next(one for one in verdict.results if one.status == "fail")
    hints = {one.name: one.hint for one in judging.EXERCISES[exercise].mistakes}
    assert (opened.mistake, opened.hint) == (mistake, hints[mistake])
    assert verdict.points < verdict.max_points
    assert mistake in str(verdict) and opened.hint in str(verdict)
    assert any("✗" in row for row in opened.rows), "the table marks where it diverges"
    checks = {check.id: check for check in judging.EXERCISES[exercise].checks}
    for result in verdict.results:
        assert result.status == "blocked" or opened.id not in checks[result.id].depends


def test_every_known_mistake_has_a_wrong_answer() -> None:
    known = {(one.name, m.name) for one in judging.EXERCISES.values() for m in one.mistakes}
    assert {(exercise, mistake) for exercise, _, mistake in WRONG} == known
    assert all(len(one.mistakes) >= 3 for one in judging.EXERCISES.values())
    hints = [m.hint for one in judging.EXERCISES.values() for m in one.mistakes]
    assert len(set(hints)) == len(hints)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_one_rank_alone_in_a_collective_is_a_timeout(
    exercise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    lines = "import torch\nif dist.get_rank() == 1:\n    dist.all_reduce(torch.ones(1))"
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    first = verdict.results[0]
    assert (verdict.status, verdict.points) == ("timeout", 0)
    assert first.hint == judging.EXERCISES[exercise].hang_hint
    words = ["returned", "is still inside your function", "returned"]
    assert [row[1] for row in first.rows] == words[: judging.EXERCISES[exercise].ranks]
    assert not Run.open(verdict.folder).ok


def test_the_given_loop_of_ex03c_hangs_and_the_table_shows_who_made_fewer_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    one = judging.EXERCISES["ex03c"]
    lines = one.given.split("\n", 1)[1]
    verdict = answer(tmp_path, monkeypatch, "ex03c", lines)
    assert (verdict.status, verdict.results[0].hint) == ("timeout", one.hang_hint)
    rows = verdict.results[0].rows
    fewer = [row for row in rows if row[3].endswith("✗")]
    assert len(fewer) == 1 and fewer[0][1] == "returned"
    for row in rows:
        if row not in fewer:
            assert row[1] == "is still inside your function" and "loss.backward()" in row[2]
            assert int(row[3]) == int(fewer[0][3].split()[0]) + 1


def test_a_loop_without_end_is_told_from_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    verdict = answer(tmp_path, monkeypatch, "ex00", "while True:\n    number = number + 0")
    assert (verdict.status, verdict.results[0].mistake) == ("timeout", "a loop without end")
    assert "number = number + 0" in str(verdict) or "while True" in str(verdict)


@pytest.mark.parametrize(
    ("exercise", "lines", "status", "said"),
    [
        ("ex02", "for p in model.parameters():\n    dist.all_reduce(p.grad)", "error", "frozen"),
        ("ex00", "dist.init_process_group('gloo')", "error", "twice"),
        (
            "ex05",
            HANDED_OVER.replace("hidden = stage(data)", "hidden = stage(data).detach()"),
            "error",
            "not its detached copy",
        ),
        ("ex05", HANDED_OVER.replace("(hidden, gradient)", "(hidden)"), "error", "is no scalar"),
        ("ex00", "if dist.get_rank() == 2:\n    1 / 0\nreturn number", "error", "Rank 2 raised"),
        ("ex00", "import os\nos._exit(0)", "error", "without an answer"),
        ("ex00", "raise SystemExit(0)", "error", "SystemExit"),
        (
            "ex00",
            "if dist.get_rank() == 1:\n    import os\n    os._exit(0)\ndist.all_reduce(number)",
            "error",
            "Rank 1 left without an answer",
        ),
        (
            "ex00",
            "if dist.get_rank() == 2:\n    1 / 0\ndist.all_reduce(number)",
            "error",
            "Rank 2 raised first: ZeroDivisionError",
        ),
        ("ex00", "return dist.all_reduce(nmber)", "error", "a letter that differs"),
        ("ex00", "print('x' * (5 << 20))\nreturn number", "fail", "own number returned"),
        ("ex00", "raise RuntimeError('\\x1b[2Jred\\a')", "error", "RuntimeError: [2Jred"),
        ("ex00", "raise ValueError", "error", "Rank"),
        (
            "ex00",
            "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\nraise Mute",
            "error",
            "Mute: it has no text",
        ),
        (
            "ex00",
            "import os\nos.environ.clear()\nos.chdir('/')\nreturn number",
            "fail",
            "own number",
        ),
        ("ex00", "return number.to('meta')", "error", "NotImplementedError"),
        ("ex00", "dist.destroy_process_group()\nreturn number", "error", "neither create nor"),
        ("ex00", "while True:\n    print('x' * 10000)", "error", "what ends the loop?"),
        (
            "ex00",
            "import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n"
            "return number",
            "fail",
            "own number returned",
        ),
        (
            "ex00",
            "store, n = dist.distributed_c10d._get_default_store(), len(number)\n"
            "store.set(f'{n} {dist.get_rank()}', number.numpy().tobytes())\n"
            "parts = [bytearray(store.get(f'{n} {rank}')) for rank in range(3)]\n"
            "return sum(torch.frombuffer(part, dtype=torch.float32) for part in parts)",
            "fail",
            "no collective",
        ),
        ("ex00", "return number.bool()", "error", "cannot be judged"),
        ("ex00", "return torch.zeros(1 << 23)", "error", "cannot be judged"),
        ("ex00", "return number * float('nan')", "fail", "nan"),
        ("ex00", "return number[0]", "fail", "a single number"),
        ("ex00", "number = (", "ungradable", "(ex00_sum_over_ranks.py, line"),
        ("ex00", "...", "ungradable", "still to be written"),
        ("ex00", "x = 1\nraise NotImplementedError('soon')", "error", "still stands"),
        ("ex00", "input()", "error", "answer input()"),
        ("ex00", "breakpoint()\nreturn number", "error", "needs a terminal"),
        ("ex00", "raise ValueError('x' * 10_000_000)", "error", "raised first: ValueError: xxx"),
    ],
)
def test_other_endings(
    exercise: str,
    lines: str,
    status: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    assert (verdict.status, verdict.points) == (status, 0), str(verdict)
    assert said in str(verdict)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("def sum_over_ranks():\n    return 1\n", "error", "as the stub defines it"),
        ("async def sum_over_ranks(number):\n    return number\n", "ungradable", "async"),
        ("def sum_over_rank(number):\n    return number\n", "ungradable", "no longer defines"),
        ("def sum_over_ranks(n):\n    return n\ndel sum_over_ranks\n", "error", "can be called"),
        ("sum_over_ranks = 3\n", "error", "sum_over_ranks is 3"),
        ("class sum_over_ranks:\n    def __init__(self, n):\n        pass\n", "fail", "no tensor"),
        ("sum_over_ranks = lambda number: number\n", "fail", "own number returned"),
        ("from torch import clone as sum_over_ranks\n", "fail", "own number returned"),
        ("raise RuntimeError('at import')\ndef sum_over_ranks(number):\n    return number\n",
         "error", "at import"),
        ("import sys\nsys.exit()\ndef sum_over_ranks(number):\n    return number\n", "error",
         "SystemExit"),
        ("def sum_over_ranks(number):\n    return 'é'\n".encode("latin-1"), "ungradable", "utf-8"),
        ("def sum_over_ranks(n):\n    return n\n".encode("utf-16"), "ungradable", "as UTF-16"),
        ("def sum_over_ranks(n):\n    return n\n".encode("utf-16-le"), "ungradable", "as UTF-16"),
        ("def sum_over_ranks(number):\n\0    return number\n", "ungradable", "null"),
        ("def sum_over_ranks(number):\n    retrn number\n", "ungradable", "    retrn number\n"),
        ("def sum_over_ranks(number):\n\treturn number\n        x\n", "ungradable", "line 3"),
        ("\ufeffdef sum_over_ranks(number):\n    return '\\d'\n", "fail", "no tensor"),
        ("x = " + "(" * 5000 + ")" * 5000 + "\n", "ungradable", "Repair that first"),
        ("x = " + "-" * 200_000 + "1\n", "ungradable", "nested too deeply"),
        ("#" * (2 << 20), "ungradable", "larger than"),
        ("", "ungradable", "no longer defines"),
    ],
)  # fmt: skip
def test_whole_files(
    text: str | bytes, status: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "ex00_sum_over_ranks.py").write_bytes(whole)
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    verdict = check("ex00")
    assert (verdict.status, verdict.points) == (status, 0), str(verdict)
    assert said in str(verdict)


def test_a_file_beside_it_can_be_imported_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_helper.py").write_text("def same(number):\n    return number\n")
    (tmp_path / "random.py").write_text("raise RuntimeError('not this one')\n")
    text = "import random\nfrom my_helper import same as sum_over_ranks\n"
    (tmp_path / "ex00_sum_over_ranks.py").write_text(text)
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    verdict = check("ex00")
    assert verdict.results[0].mistake == "own number returned", str(verdict)


def test_what_is_no_file_is_not_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    path = tmp_path / "ex00_sum_over_ranks.py"
    path.mkdir()
    assert "is a folder" in str(check("ex00"))
    path.rmdir()
    os.mkfifo(path)
    assert "no regular file" in str(check("ex00"))
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert check("ex00").status == "ungradable"


def test_ranks_that_never_come_are_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    monkeypatch.setattr(judging, "DRIVER", ROOT / "tests" / "data" / "leaves_at_once.py")
    verdict = check("ex00")
    assert (verdict.status, verdict.points) == ("infra", 0)


def test_a_missing_file_and_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    assert check("ex00").status == "ungradable"
    with pytest.raises(BadArgument, match="ex00, ex01, ex02"):
        check("ex99")


def test_a_table_names_ranks_and_parts_and_shows_whole_numbers_whole() -> None:
    def expected(inputs: PerRank) -> PerRank:
        return [{"uneven/size": np.array([1437909072])} for _ in inputs]

    check_of_size = Check("size", "a title", "a reason", 1, expected, ("uneven/x", "uneven/size"))
    inputs: PerRank = [{"uneven/x": np.array(11)}, {"uneven/x": np.array(3)}]
    outputs: PerRank = [{"uneven/size": np.array([0.5])}, {"uneven/size": np.array(2)}]
    head, rows = judging.table_of(check_of_size, inputs, outputs)
    result = Result("size", "a title", "fail", 1, head=head, rows=rows)
    shown = str(Verdict("ex00", "a title", (result,)))
    assert "had x (in uneven)  has size[0] (in uneven)" in shown
    assert re.search(r"rank 0 +11 +0\.5 +1437909072 +✗", shown)
    assert re.search(r"rank 1 +3 +2, a single number +1437909072 +✗", shown)
