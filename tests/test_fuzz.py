"""Arguments from anyone: of launch(), of the command line, of check(). An answer, or a sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddp_course import machine
from ddp_course.__main__ import main
from ddp_course.checks import exercises
from ddp_course.errors import BadArgument, CourseError
from ddp_course.launcher import launch as launcher
from ddp_course.launcher.live import Launch
from ddp_course.rank import data
from ddp_course.run.run import Run

# On a busy machine nothing is too slow.
FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANY_SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.binary(max_size=4),
    st.sampled_from([
        "hello_ranks", "hello_ranks.py", "../hello_ranks", "~", "~nobody/x.py", "/", "/dev/zero",
        "/dev/zero.py", ".", "", " ", "\0", "\ud800.py", "x" * 5000, "a\nb.py", "-", "--", "-1",
        10**5000, float("nan"), float("inf"), 1e308, 2, 1, 0, Path(), Path("/"), Path("x.py"),
        os.environ, Ellipsis, print, int,
    ]),
)  # fmt: skip
ANYTHING = st.one_of(
    ANY_SCALAR,
    st.lists(ANY_SCALAR, max_size=3),
    st.tuples(ANY_SCALAR, ANY_SCALAR),
    st.dictionaries(st.text(max_size=4), ANY_SCALAR, max_size=2),
    st.sets(st.integers(), max_size=2),
)
KNOBS_JOB = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int)
parser.add_argument("--name", choices=["a", "b"])
parser.add_argument("--rates", type=float, nargs="+")
parser.add_argument("--shuffle", action="store_true")
parser.add_argument("--data", default="mnist")
parser.add_argument("--any", type=lambda text: text)
"""


class Started(Exception):
    """The launch was accepted; nothing is started here."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jobs") / "job.py"
    path.write_text(KNOBS_JOB)
    return path


@pytest.fixture(scope="module", autouse=True)
def nothing_starts() -> Iterator[None]:
    def accepted(one: Launch) -> None:
        assert one.plan.command
        assert one.plan.environment(one.run.folder)
        shutil.rmtree(one.run.folder)
        raise Started

    def done(*_: object, **__: object) -> Any:
        raise Started

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "_submit", accepted)
        patch.setattr(machine, "doctor", done)
        patch.setattr(data, "_download", done)
        yield


LAUNCH = "ranks", "nodes", "trace", "limit_s", "restarts", "warm", "env", "wait", "argv"
KNOBS = "lr", "steps", "name", "rates", "shuffle", "data", "any", "unknown", "l r", "", "self"


@settings(FUZZ, max_examples=400)
@given(
    given_=st.dictionaries(st.sampled_from(LAUNCH + KNOBS), ANYTHING, max_size=3),
    named=st.one_of(st.just(None), ANYTHING),
)
@example(given_={"argv": ["\0"]}, named=None)
@example(given_={"argv": "words"}, named=None)
@example(given_={"lr": 10**400}, named=None)
@example(given_={"env": {"A": "b"}, "argv": ["--x", "y"], "lr": 0.5, "nodes": 2}, named=None)
def test_launch_starts_or_says_why_not(job: Path, given_: dict[str, Any], named: Any) -> None:
    try:
        launcher.launch(job if named is None else named, **given_)
    except Started:
        pass
    except CourseError as error:
        assert str(error).strip()
        assert len(str(error)) < 5000
    else:
        raise AssertionError("neither started nor refused")
    assert launcher.live_runs() == []


WORDS = st.one_of(
    st.sampled_from([
        "run", "diagnose", "doctor", "prepare", "--", "-", "--ranks", "--ranks=2", "--nodes", "2",
        "0", "-1", "1e9", "nan", "--limit", "--limit=5", "--restarts", "--trace", "--cold", "-e",
        "-e=", "A=b", "=b", "--env", "hello_ranks", "digits", "mnist", "/", ".", "", "--help", "-h",
        "--steps", "--steps=3", "@file", "--rank", "\ud800", "\0", "x" * 5000, "diagnose ",
    ]),
    st.text(max_size=6),
)  # fmt: skip


@settings(FUZZ, max_examples=400)
@given(first=st.sampled_from(["run", "run", "diagnose", "prepare", "doctor", "no"]),
       words=st.lists(WORDS, max_size=6))  # fmt: skip
@example(first="run", words=["hello_ranks", "--", "--steps"])
@example(first="run", words=["hello_ranks", "--", "-n", "5"])
@example(first="run", words=["hello_ranks", "--", "--steps=" + "9" * 5000])
@example(first="run", words=["hello_ranks", "--", "--steps", "[" * 5000])
@example(first="run", words=["hello_ranks", "--ranks", "9" * 5000])
def test_any_words_are_a_request_or_a_mistake(first: str, words: list[str]) -> None:
    try:
        assert main([first, *words]) in (0, 1, 2)  # 0: `prepare digits`, or a run of other tests
    except Started:
        pass
    except SystemExit as left:
        assert left.code in (0, 2)


@settings(FUZZ, max_examples=200)
@given(name=ANYTHING)
@example(name="ex")
@example(name="EX99")
@example(name="../ex00")
@example(name="ex00\0")
def test_the_name_of_an_exercise_is_found_or_refused(name: Any) -> None:
    try:
        assert exercises.find(name).name in str(name)
    except BadArgument as error:
        assert "What to do" in str(error)


@settings(FUZZ, max_examples=100)
@given(path=ANY_SCALAR)
def test_a_run_of_anything_else_is_refused(path: Any) -> None:
    with contextlib.suppress(TypeError):
        Path(path)
        with pytest.raises(CourseError):
            Run.open(path)
